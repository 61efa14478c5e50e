//! The tables: a small bank. `account` is what the load reads and updates; to `history` it and imports add; `archive` is large and cold.

use super::session::Session;

/// Whose the tables are: an application's role as it should be, which is no superuser's.
pub const OWNER: &str = "bank";

/// How much there is of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Accounts, numbered from 1.
    pub accounts: u32,
    /// Bytes of text in each account, beside some 50 of the rest.
    pub account_bytes: u32,
    /// Rows of the archive, of about 800 bytes each.
    pub archived: u32,
}

impl Default for Scale {
    /// Fits the smallest memory: 15 MB and 80 MB.
    fn default() -> Scale {
        Scale { accounts: 100_000, account_bytes: 84, archived: 100_000 }
    }
}

/// A function that computes for so many seconds: what makes a statement long, on a fast machine and a slow one alike.
const WORK: &str = "
    create function work(seconds double precision) returns bigint language plpgsql volatile as $$
    declare
        until timestamptz := clock_timestamp() + make_interval(secs => seconds);
        n bigint := 0;
    begin
        while clock_timestamp() < until loop
            n := n + (select count(*) from generate_series(1, 1000));
        end loop;
        return n;
    end $$";

/// Makes and fills the tables. Accounts are vacuumed, as they would be in a database that has run for a while; the archive has just been
/// loaded.
///
/// # Errors
/// What the server says.
pub async fn fill(
    session: &Session,
    Scale { accounts, account_bytes, archived }: Scale,
) -> Result<(), String> {
    // A fifth of each page stays free, so that updates need no new index entries.
    let statements = [
        &format!("create role {OWNER} login"),
        &format!("grant create on schema public to {OWNER}"),
        &format!("set role {OWNER}"),
        "create table account (id bigint primary key, balance bigint not null, filler text not null) with (fillfactor = 80)",
        &format!(
            "insert into account select i, 0, repeat('x', {account_bytes}) from generate_series(1, {accounts}) i"
        ),
        "create table history (id bigserial primary key, account bigint not null, delta bigint not null, note text)",
        "create table archive (id bigint not null, note text not null)",
        &format!(
            "insert into archive select i, repeat(md5(i::text), 24) from generate_series(1, {archived}) i"
        ),
        WORK,
        "vacuum (analyze) account",
        "analyze archive",
        "reset role",
        "checkpoint",
    ];
    for statement in statements {
        session.run(statement).await?;
    }
    Ok(())
}
