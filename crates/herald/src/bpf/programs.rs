//! The programs in the kernel, of `bpf/tasks.bpf.c`.

use std::fs;
use std::io::Read;
use std::os::linux::fs::MetadataExt;

use libbpf_rs::{
    ErrorKind, Iter, Link, MapCore, MapFlags, Object, ObjectBuilder, PrintLevel, ProgramInput, set_print,
};

use super::record::Record;

/// Made of `bpf/tasks.bpf.c` by `ci/bpf.sh build`.
const OBJECT: &[u8] = include_bytes!("../../bpf/tasks.bpf.o");
/// The number of the outermost pid namespace, which is the same on all kernels.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
/// More threads than that are not read, as a limit on memory.
const MOST: usize = 131_072;
/// Records that are read at once of what `lately` tells, and how many times that there is room for.
const CHUNK: usize = 64;
const CHUNKS: usize = 128;
/// Of more threads `lately` does not tell.
const MOST_TASKS: u32 = 32_768;

/// Loaded.
pub struct Programs {
    all: Link,
    has_lately: bool,
    object: Object,
    chunk: Vec<u8>,
}

/// What a look at who did anything lately came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Threads that there are,
    pub tasks: usize,
    /// and the sum of their numbers.
    pub numbers: u64,
}

impl Programs {
    /// Loads them.
    ///
    /// # Errors
    /// Why they cannot be, and what would help.
    pub fn load() -> Result<Programs, String> {
        let namespace = fs::metadata("/proc/self/ns/pid").map(|file| file.st_ino());
        if namespace.ok() != Some(FIRST_PID_NAMESPACE) {
            return Err(
                "this is a container with a pid namespace of its own, whose numbers BPF does not tell"
                    .to_owned(),
            );
        }
        if fs::metadata("/sys/kernel/btf/vmlinux").is_err() {
            return Err("the kernel has no type information (CONFIG_DEBUG_INFO_BTF)".to_owned());
        }
        // What libbpf would print is in the error that is told.
        set_print(None::<(PrintLevel, fn(PrintLevel, String))>);
        let loaded = |has_lately| {
            let mut open =
                ObjectBuilder::default().open_memory(OBJECT).map_err(|error| wrong("opened", &error))?;
            for mut program in open.progs_mut().filter(|program| program.name() == "lately") {
                program.set_autoload(has_lately);
            }
            let object = open.load().map_err(|error| wrong("loaded", &error))?;
            let program = object.progs_mut().find(|program| program.name() == "tasks");
            let program = program.ok_or("the BPF object holds no program `tasks`")?;
            let all = program.attach().map_err(|error| wrong("attached", &error))?;
            Ok(Programs { all, has_lately, object, chunk: vec![0; CHUNK * Record::SIZE] })
        };
        // An older kernel lacks what one of the two needs.
        loaded(true).or_else(|_| loaded(false))
    }

    /// Reads all threads into `buffer`.
    ///
    /// # Errors
    /// Where the kernel does not run the iterator any more.
    pub fn all(&self, buffer: &mut Vec<u8>) -> Result<(), String> {
        let iter =
            Iter::new(&self.all).map_err(|error| format!("the BPF iterator cannot be run: {error}"))?;
        let most = (MOST * Record::SIZE) as u64;
        iter.take(most)
            .read_to_end(buffer)
            .map_err(|error| format!("the BPF iterator cannot be read: {error}"))?;
        Ok(())
    }

    /// Reads those who did anything lately into `buffer`; nothing where that is not to be had.
    ///
    /// # Errors
    /// Where the kernel does not run the program any more.
    pub fn lately(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Tally>, String> {
        if !self.has_lately {
            return Ok(None);
        }
        let failed = |error: libbpf_rs::Error| format!("the BPF program cannot be run: {error}");
        let gone = "the BPF object has lost a part";
        let program = self.object.progs_mut().find(|program| program.name() == "lately").ok_or(gone)?;
        // As `struct tally` has it.
        let mut tally = [0; 16];
        program
            .test_run(ProgramInput { context_in: Some(&mut tally), ..ProgramInput::default() })
            .map_err(failed)?;
        let u32_at = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| tally[at + byte]));
        let (told, tasks) = (u32_at(0) as usize, u32_at(4));
        let numbers = u64::from_ne_bytes(std::array::from_fn(|byte| tally[8 + byte]));
        if told > CHUNK * CHUNKS || tasks > MOST_TASKS {
            return Ok(None);
        }
        let map = self.object.maps().find(|map| map.name() == "told").ok_or(gone)?;
        for number in 0..told.div_ceil(CHUNK) {
            let key = (number as u32).to_ne_bytes();
            map.lookup_into(&key, &mut self.chunk, MapFlags::ANY).map_err(failed)?;
            let records = (told - number * CHUNK).min(CHUNK);
            buffer.extend_from_slice(&self.chunk[..records * Record::SIZE]);
        }
        Ok(Some(Tally { tasks: tasks as usize, numbers }))
    }
}

fn wrong(what: &str, error: &libbpf_rs::Error) -> String {
    let right = match error.kind() {
        ErrorKind::PermissionDenied => "; CAP_BPF and CAP_PERFMON are missing: run as root",
        _ => "",
    };
    format!("the BPF program cannot be {what}: {error}{right}")
}
