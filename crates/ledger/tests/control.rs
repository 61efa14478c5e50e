//! The control lines of `sdk/vectors/control.txt`: each says what stands beneath it, and what is understood is written as it was read.

use plimsoll_ledger::control::{FromAgent, FromSdk};

fn agent(line: &FromAgent) -> String {
    match line {
        FromAgent::Welcome { version, mode } => format!("welcome version={version} mode={mode}"),
        FromAgent::Refused { text } => format!("refused text={text}"),
        FromAgent::Cancel { id, task, turn, resource, text } => {
            format!("cancel id={id} task={task} turn={turn} resource={resource} text={text}")
        }
        FromAgent::Rerun { id } => format!("rerun id={id}"),
        FromAgent::Drop { id } => format!("drop id={id}"),
    }
}

fn sdk(line: &FromSdk) -> String {
    match line {
        FromSdk::Hello { version, file } => format!("hello version={version} file={file}"),
        FromSdk::Acknowledge { id } => format!("acknowledge id={id}"),
        FromSdk::Outcome { id, outcome, text } => format!("outcome id={id} word={outcome} text={text}"),
        FromSdk::Reran { id } => format!("reran id={id}"),
        FromSdk::Dropped { id } => format!("dropped id={id}"),
    }
}

#[test]
fn lines_say_what_stands_beneath_them() {
    let text = include_str!("../../../sdk/vectors/control.txt");
    let mut lines = text
        .lines()
        .filter(|line| line.starts_with("agent ") || line.starts_with("sdk ") || line.starts_with("= "));
    let mut understood = 0;
    while let Some(line) = lines.next() {
        let says = lines.next().and_then(|line| line.strip_prefix("= ")).expect("what it says");
        let (from, line) = line.split_once(' ').unwrap();
        let (read, written) = match from {
            "agent" => (line.parse().map(|read| (agent(&read), read.to_line())), agent_again(line)),
            _ => (line.parse().map(|read: FromSdk| (sdk(&read), read.to_line())), sdk_again(line)),
        };
        match read {
            Ok((read, again)) => {
                assert_eq!(read, says, "{line}");
                assert_eq!(written.as_deref(), Some(&*read), "{line} is written as {again}");
                understood += 1;
            }
            Err(why) => assert_eq!(says, "ignored", "{line}: {why}"),
        }
    }
    assert!(understood >= 20);
}

/// What a line says once it was written and read again.
fn agent_again(line: &str) -> Option<String> {
    let again = line.parse::<FromAgent>().ok()?.to_line();
    again.strip_suffix('\n')?.parse().ok().as_ref().map(agent)
}

fn sdk_again(line: &str) -> Option<String> {
    let again = line.parse::<FromSdk>().ok()?.to_line();
    again.strip_suffix('\n')?.parse().ok().as_ref().map(sdk)
}
