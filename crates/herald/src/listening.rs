//! Who listens on a TCP port of this host: `/proc/net/tcp` tells the socket, the descriptors of all processes whose it is. Workers
//! that were forked from who opened it hold it too.

use std::collections::BTreeSet;
use std::fs;

/// Why nobody is known to listen there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Nobody does, in this network namespace.
    Nobody,
    /// Somebody does whose descriptors this process may not see.
    Hidden,
}

/// Processes that hold a socket which listens on this TCP port, on any address.
///
/// # Errors
/// Where there are none, or none that may be seen.
pub fn processes(port: u16) -> Result<BTreeSet<u32>, Unknown> {
    let sockets: BTreeSet<u64> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok())
        .flat_map(|text| listeners(&text, port))
        .collect();
    if sockets.is_empty() {
        return Err(Unknown::Nobody);
    }
    let holds = |pid: &u32| {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        entries.flatten().any(|entry| {
            let link = fs::read_link(entry.path()).ok();
            link.and_then(|link| socket(link.to_str()?)).is_some_and(|socket| sockets.contains(&socket))
        })
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let found: BTreeSet<u32> = pids.filter(holds).collect();
    if found.is_empty() { Err(Unknown::Hidden) } else { Ok(found) }
}

/// The sockets of a file like `/proc/net/tcp` that listen on a port.
fn listeners(text: &str, port: u16) -> Vec<u64> {
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (_, local_port) = fields.get(1)?.rsplit_once(':')?;
        // State 0A is LISTEN.
        let wanted = u16::from_str_radix(local_port, 16).ok()? == port && *fields.get(3)? == "0A";
        wanted.then_some(fields.get(9)?.parse().ok()?)
    };
    text.lines().filter_map(of_line).collect()
}

/// The number in a descriptor's link, `socket:[12345]`.
fn socket(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn who_listens_is_found_and_who_does_not_is_not() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A host may have no IPv6.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().unwrap().port();
            assert_eq!(processes(port), Ok(BTreeSet::from([std::process::id()])), "{address}");
            drop(listener);
            assert_eq!(processes(port), Err(Unknown::Nobody), "{address}");
        }
    }

    #[test]
    fn lines_that_make_no_sense_are_left_out() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n\
            1: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0\n\
            2: 0100007F:1F91 00000000:0000 0A\nnonsense\n";
        assert_eq!(listeners(text, 8080), [4711]);
        assert_eq!(listeners(text, 8081), [0_u64; 0]);
        assert_eq!((socket("socket:[12]"), socket("pipe:[12]"), socket("/a")), (Some(12), None, None));
    }
}
