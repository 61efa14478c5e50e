//! A slow disk and a small page cache for some processes: on a machine whose memory holds every table, and whose disk answers in a tenth
//! of a millisecond, nothing that is said about IO could be tried.
//!
//! The kernel counts memory for whoever touches it first, so who is to have a small cache is to be held before reading or writing
//! anything. The disk may become slow later, when the tables are filled.
//!
//! Version 1 of control groups throttles reads and what a process itself waits to be written (`fsync`, `fdatasync`), not what the kernel
//! writes back later by itself. Version 2 throttles that, too.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::control_group::ControlGroup;

/// What a disk can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Bytes read a second.
    pub read_bytes_per_s: u64,
    /// Bytes written a second.
    pub write_bytes_per_s: u64,
    /// Reads a second.
    pub reads_per_s: u64,
}

/// Control groups with limits on memory and disk. Dropped, they let go of those that they hold.
#[derive(Debug)]
pub struct DiskCap {
    /// Of version 2, or the one for memory.
    memory: ControlGroup,
    /// In version 1 a group of its own.
    disk: Option<ControlGroup>,
}

impl DiskCap {
    /// One that lets all that it will hold use so much memory together, their page cache included, and the disk as it is.
    ///
    /// # Errors
    /// Why it is not to be had: mostly for want of permission, which containers rarely give.
    pub fn new(memory_bytes: u64) -> Result<DiskCap, String> {
        let memory = ControlGroup::new(&[
            ("/sys/fs/cgroup/memory", &[("memory.limit_in_bytes", memory_bytes.to_string())]),
            ("/sys/fs/cgroup", &[("memory.max", memory_bytes.to_string())]),
        ])?;
        let disk = match memory.is_unified() {
            true => None,
            false => Some(ControlGroup::new(&[("/sys/fs/cgroup/blkio", &[])])?),
        };
        Ok(DiskCap { memory, disk })
    }

    /// Holds a process and its children from now on, and what they start later.
    ///
    /// # Errors
    /// Where one of them cannot be moved. One that has ended meanwhile is none.
    pub fn hold(&self, root: u32) -> io::Result<()> {
        [Some(&self.memory), self.disk.as_ref()].into_iter().flatten().try_for_each(|group| group.hold(root))
    }

    /// Makes the disk that holds `path` slow for those inside.
    ///
    /// # Errors
    /// Where `path` is on no disk (as in a file system in memory), or the kernel has no such limit.
    pub fn slow_down(&self, path: &Path, disk: Disk) -> Result<(), String> {
        let device = device_of(path)?;
        let Disk { read_bytes_per_s, write_bytes_per_s, reads_per_s } = disk;
        let limits = match &self.disk {
            Some(group) => {
                [("read_bps", read_bytes_per_s), ("write_bps", write_bytes_per_s), ("read_iops", reads_per_s)]
                    .map(|(name, most)| {
                        (group, format!("blkio.throttle.{name}_device"), format!("{device} {most}"))
                    })
                    .to_vec()
            }
            None => {
                let most =
                    format!("{device} rbps={read_bytes_per_s} wbps={write_bytes_per_s} riops={reads_per_s}");
                vec![(&self.memory, "io.max".to_owned(), most)]
            }
        };
        for (group, file, text) in limits {
            group
                .set(&file, &text)
                .map_err(|e| format!("cannot slow down the disk ({file}: {text}): {e}"))?;
        }
        Ok(())
    }
}

/// The number of the disk that a path is on. Limits are set for whole disks.
fn device_of(path: &Path) -> Result<String, String> {
    let failed = |e: io::Error| format!("cannot tell which disk {} is on: {e}", path.display());
    let number = fs::metadata(path).map_err(failed)?.dev();
    let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let known = Path::new("/sys/dev/block").join(&number);
    let known = fs::canonicalize(known)
        .map_err(|_| format!("{} is on no disk that could be slowed down", path.display()))?;
    match known.join("partition").exists() {
        true => fs::read_to_string(known.join("../dev")).map(|text| text.trim().to_owned()).map_err(failed),
        false => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_is_in_memory_is_on_no_disk() {
        let error = device_of(Path::new("/proc")).unwrap_err();
        assert!(error.contains("/proc is on no disk"), "{error}");
    }

    #[test]
    fn it_holds_a_process_in_all_its_groups_and_slows_its_disk_down() {
        let mut sleep = Command::new("sleep").arg("100").spawn().unwrap();
        match DiskCap::new(64 << 20) {
            Ok(cap) => {
                cap.hold(sleep.id()).unwrap();
                for group in [Some(&cap.memory), cap.disk.as_ref()].into_iter().flatten() {
                    assert_eq!(group.inside(), [sleep.id()]);
                }
                let disk = Disk { read_bytes_per_s: 1 << 20, write_bytes_per_s: 2 << 20, reads_per_s: 1_000 };
                let here = Path::new(env!("CARGO_MANIFEST_DIR"));
                match cap.slow_down(here, disk) {
                    Ok(()) => {
                        let group = cap.disk.as_ref().unwrap_or(&cap.memory).path();
                        let file = group.join(if cap.disk.is_some() {
                            "blkio.throttle.write_bps_device"
                        } else {
                            "io.max"
                        });
                        let text = fs::read_to_string(file).unwrap();
                        assert!(text.contains(&(2 << 20).to_string()), "{text}");
                    }
                    Err(why) => eprintln!("not slowed down: {why}"),
                }
                let groups =
                    [Some(&cap.memory), cap.disk.as_ref()].map(|group| group.map(|g| g.path().to_owned()));
                drop(cap);
                assert!(groups.iter().flatten().all(|group| !group.exists()));
            }
            Err(why) => eprintln!("not capped: {why}"),
        }
        sleep.kill().unwrap();
        sleep.wait().unwrap();
    }
}
