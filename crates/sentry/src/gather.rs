//! Small writes in one piece. hyper hands over a message as its head and its body; for a few hundred bytes the copy
//! is cheaper than what the kernel does to write two pieces as one (by 0.2 us, measured on Linux 6.18).

use std::io::IoSlice;

/// What is gathered at most.
pub const SMALL: usize = 1024;

/// The pieces as one, where there is one only or they fit into `room`.
#[inline]
pub fn gather<'a>(pieces: &'a [IoSlice<'_>], room: &'a mut [u8; SMALL]) -> Option<&'a [u8]> {
    if let [only] = pieces {
        return Some(only);
    }
    let mut end = 0;
    for piece in pieces {
        room.get_mut(end..end + piece.len())?.copy_from_slice(piece);
        end += piece.len();
    }
    Some(&room[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(pieces: &[&[u8]]) -> Option<Vec<u8>> {
        let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        gather(&slices, &mut [0; SMALL]).map(<[u8]>::to_vec)
    }

    #[test]
    fn small_pieces_become_one() {
        assert_eq!(gathered(&[b"head", b"", b"body"]).unwrap(), b"headbody");
        assert_eq!(gathered(&[&[1; 512], &[2; 512]]).unwrap(), [[1; 512], [2; 512]].concat());
        assert_eq!(gathered(&[&[1; 100_000]]).unwrap().len(), 100_000);
        assert_eq!(gathered(&[]).unwrap(), b"");
        assert_eq!(gathered(&[&[1; 512], &[2; 513]]), None, "large ones stay where they are");
    }
}
