//! `plimsoll explain`: asks the admin address of a running sentry and says in words what it answers.

mod ask;
mod words;

use std::path::PathBuf;
use std::process::ExitCode;

use plimsoll_core::config::Secret;

use crate::admin::model::{DecisionView, Overview};
use crate::config_file;

/// Where the token is looked for if no config tells it. An argument would show it to every user of the machine.
const TOKEN_VAR: &str = "PLIMSOLL_ADMIN_TOKEN";

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where the sentry's admin address is [default: that of the config, else http://127.0.0.1:9900].
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// The sentry's config, for its admin address and token. The token may also come in PLIMSOLL_ADMIN_TOKEN.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only this class.
    #[arg(long, value_name = "NAME")]
    class: Option<String>,
    /// Print what the sentry answered instead of words.
    #[arg(long)]
    json: bool,
}

/// Runs `explain`.
pub fn run(args: &Args) -> ExitCode {
    match answer(args) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn answer(args: &Args) -> Result<String, String> {
    let config = args.config.as_deref().map(config_file::load).transpose().map_err(|e| e.to_string())?;
    let sentry = config.map(|loaded| loaded.config.sentry);
    let admin = args.admin.clone().unwrap_or_else(|| match &sentry {
        Some(sentry) => format!("http://{}", sentry.admin),
        None => "http://127.0.0.1:9900".to_owned(),
    });
    let token = sentry.and_then(|s| s.admin_token).map(|token: Secret| token.reveal().to_owned());
    let token = token.or_else(|| std::env::var(TOKEN_VAR).ok());
    let asked = ask::get(
        &admin,
        token.as_deref(),
        &["/classes", "/decisions?verdict=refuse,would-refuse&limit=1000"],
    );
    let [classes, decisions] =
        <[Vec<u8>; 2]>::try_from(asked?).map_err(|_| "the sentry did not answer everything")?;
    let unreadable =
        |e: serde_json::Error| format!("{admin} is not a sentry's admin address, or another release's: {e}");
    let overview: Overview = serde_json::from_slice(&classes).map_err(unreadable)?;
    let decisions: Vec<DecisionView> = serde_json::from_slice(&decisions).map_err(unreadable)?;
    if !args.json {
        return words::report(&overview, &decisions, args.class.as_deref());
    }
    let wanted = |name: &str| args.class.as_deref().is_none_or(|class| class == name);
    let mut overview = overview;
    overview.classes.retain(|c| wanted(&c.name));
    let decisions: Vec<_> = decisions.into_iter().filter(|d| wanted(&d.class)).collect();
    let json = serde_json::json!({ "overview": overview, "refusals": decisions });
    Ok(format!("{json}\n"))
}
