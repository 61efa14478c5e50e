//! Modes of metadata locks and which of them conflict, as MariaDB's `sql/mdl.cc` says (the matrices of granted locks).

use crate::server::chains::Mode;

/// Of tables, functions and so on, and with which each conflicts: bit `i` is mode `i`.
const OBJECTS: [(&str, u32); 10] = [
    ("INTENTION_EXCLUSIVE", 0),
    ("SHARED", 1 << 9),
    ("SHARED_HIGH_PRIO", 1 << 9),
    ("SHARED_READ", 1 << 9 | 1 << 8),
    ("SHARED_WRITE", 1 << 9 | 1 << 8 | 1 << 7 | 1 << 6),
    ("SHARED_UPGRADABLE", 1 << 9 | 1 << 8 | 1 << 7 | 1 << 5),
    ("SHARED_READ_ONLY", 1 << 9 | 1 << 8 | 1 << 4),
    ("SHARED_NO_WRITE", 1 << 9 | 1 << 8 | 1 << 7 | 1 << 5 | 1 << 4),
    ("SHARED_NO_READ_WRITE", 1 << 9 | 1 << 8 | 1 << 7 | 1 << 6 | 1 << 5 | 1 << 4 | 1 << 3),
    ("EXCLUSIVE", 0b11_1111_1110),
];

/// Of databases: whoever alters something in one has it in the first.
const SCOPES: [(&str, u32); 3] = [("INTENTION_EXCLUSIVE", 0b110), ("SHARED", 0b101), ("EXCLUSIVE", 0b111)];

/// Of the one lock that is for backups.
const BACKUPS: [(&str, u32); 14] = [
    ("BACKUP_START", 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 11),
    ("BACKUP_FLUSH", 1 | 1 << 7),
    ("BACKUP_WAIT_FLUSH", 1 | 1 << 7),
    ("BACKUP_WAIT_DDL", 1 | 1 << 7 | 1 << 10),
    ("BACKUP_WAIT_COMMIT", 1 | 1 << 7 | 1 << 9 | 1 << 10 | 1 << 13),
    ("BACKUP_FTWRL1", 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 12),
    ("BACKUP_FTWRL2", 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 12 | 1 << 13),
    ("BACKUP_DML", 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6),
    ("BACKUP_TRANS_DML", 1 << 5 | 1 << 6),
    ("BACKUP_SYS_DML", 1 << 4 | 1 << 5 | 1 << 6),
    ("BACKUP_DDL", 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 11),
    ("BACKUP_BLOCK_DDL", 1 | 1 << 10),
    ("BACKUP_ALTER_COPY", 1 << 5 | 1 << 6),
    ("BACKUP_COMMIT", 1 << 4 | 1 << 6),
];

/// The mode that `performance_schema.metadata_locks` calls `name`, on this kind of thing; nothing where it is not known.
pub fn mode(kind: &str, name: &str) -> Option<Mode> {
    let modes: &[(&str, u32)] = match kind {
        "BACKUP" => &BACKUPS,
        "SCHEMA" => &SCOPES,
        _ => &OBJECTS,
    };
    let index = modes.iter().position(|(known, _)| *known == name)?;
    Some(Mode::new(index, modes[index].1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict(kind: &str, a: &str, b: &str) -> bool {
        mode(kind, a).unwrap().conflicts(mode(kind, b).unwrap())
    }

    #[test]
    fn who_keeps_out_whom_is_as_operators_know_it() {
        // A change of a table waits for who reads, and keeps out who comes.
        assert!(
            conflict("TABLE", "EXCLUSIVE", "SHARED_READ") && conflict("TABLE", "SHARED_READ", "EXCLUSIVE")
        );
        assert!(!conflict("TABLE", "SHARED_READ", "SHARED_WRITE"));
        assert!(!conflict("TABLE", "SHARED_UPGRADABLE", "SHARED_WRITE"));
        // Who has all tables for a backup keeps out who writes and who commits, and no other backup.
        assert!(conflict("BACKUP", "BACKUP_FTWRL1", "BACKUP_TRANS_DML"));
        assert!(conflict("BACKUP", "BACKUP_FTWRL2", "BACKUP_COMMIT"));
        assert!(!conflict("BACKUP", "BACKUP_FTWRL1", "BACKUP_FTWRL2"));
        assert!(!conflict("BACKUP", "BACKUP_DML", "BACKUP_TRANS_DML"));
        assert!(conflict("SCHEMA", "EXCLUSIVE", "INTENTION_EXCLUSIVE"));
        assert_eq!((mode("TABLE", "BACKUP_DML"), mode("BACKUP", "SHARED")), (None, None));
    }

    #[test]
    fn conflicts_are_mutual() {
        for (kind, names) in [
            ("BACKUP", BACKUPS.map(|(name, _)| name).to_vec()),
            ("SCHEMA", SCOPES.map(|(name, _)| name).to_vec()),
        ] {
            for a in &names {
                for b in &names {
                    assert_eq!(conflict(kind, a, b), conflict(kind, b, a), "{kind} {a} {b}");
                }
            }
        }
    }
}
