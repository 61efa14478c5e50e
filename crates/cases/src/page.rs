//! The reports of a directory as a page of the docs.

use std::collections::BTreeSet;

use crate::judge::{ACTION_S, DROPPED_PCT, P99, THROUGHPUT, slow};
use crate::report::Report;
use crate::run::Remedy;
use crate::show::{Row, Spread, rows};

const OURS: &str = Remedy::Plimsoll.as_str();
/// What the agent is held against, where it applies: behind by no more than this part of their goodput, ahead by that.
const OTHERS: [&str; 3] = [Remedy::Protego.as_str(), Remedy::Timeout.as_str(), Remedy::Native.as_str()];
const BEHIND: f64 = 0.01;
const AHEAD: f64 = 0.10;
/// What is told of a remedy.
const COLUMNS: &str = "Goodput is requests that were answered within the objective, throughput those that were answered at all; both are parts of the undisturbed \
    run's, and p99 is a multiple of its, once of the whole run and once without the two seconds from the beginning of the trouble on. Dropped are requests that were \
    not answered: refused because too many waited, ended, or without an answer five seconds after the run. Acted is the time from the \
    first moment at which the objective was missed to when the agent first told somebody to end, ended to when the first task had ended, recovery to when the last late request was over. \
    Of several runs the median, and from where to where they were. What remedies are: `none`, nobody does anything; `plimsoll`, the agent with \
    the rights that [the server's page](agent.md#a-server-as-it-is) asks for; `protego`, who waits too long is given up, by the same adapter and with the same rights; \
    `timeout`, limits on the time of statements, as people set them; `native`, what else the server has, or an Envoy in front of it with its adaptive concurrency limit.";

/// The page, in Markdown. Its figures are those that `case run --out` writes, in the folder `cases` beside it. A case may have run at two
/// lengths: with all remedies, and for longer with ours.
pub fn page(mut reports: Vec<Report>) -> String {
    let order = |it: &Report| (number_of(&it.case), it.case.clone(), it.seconds as u64);
    reports.sort_by_key(order);
    let cases: Vec<&[Report]> = reports.chunk_by(|a, b| a.case == b.case).collect();
    let mut page = format!("# The cases, as they ran\n\n{}\n\n", conditions(&reports));
    page += &format!(
        "{COLUMNS}\n\nGoodput of the median run, of the shorter ones where there are two lengths:\n\n"
    );
    page += &summary(&cases);
    page += &format!("\n{}\n", verdict(&cases));
    for case in cases {
        page += &section(case);
    }
    page
}

/// c10 comes after c9.
fn number_of(case: &str) -> u32 {
    case.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(u32::MAX)
}

fn conditions(reports: &[Report]) -> String {
    let machines: BTreeSet<String> = reports
        .iter()
        .map(|Report { machine, .. }| {
            let (processors, memory) = (machine.processors, machine.memory_gib);
            format!("{processors} x {}, {memory} GiB, Linux {}", machine.processor, machine.kernel)
        })
        .collect();
    let versions: BTreeSet<&str> = reports.iter().filter_map(|report| report.version.as_deref()).collect();
    let lengths: BTreeSet<String> = reports
        .iter()
        .filter(|report| !report.repetitions.is_empty())
        .map(|report| {
            let times = report.repetitions.len();
            let (seconds, warm_up, trigger) = (report.seconds, report.warm_up_s, report.trigger_s);
            format!("{times} x {seconds:.0} s after {warm_up:.0} s, the trigger at {trigger:.0} s")
        })
        .collect();
    let all = |words: BTreeSet<String>| words.into_iter().collect::<Vec<_>>().join("; ");
    format!(
        "Written by `plimsoll case report` from runs of `plimsoll case run`.\n\n\
         - Machine: {}\n- Servers, as their packages bring them: {}\n- Runs: {}. Each has a server of its own, and one of each repetition is undisturbed.",
        all(machines),
        versions.into_iter().collect::<Vec<_>>().join(", "),
        all(lengths),
    )
}

/// Of the reports of one case, that of the shortest runs, which have most remedies.
fn shortest(case: &[Report]) -> &Report {
    case.iter().find(|report| !report.repetitions.is_empty()).unwrap_or(&case[0])
}

/// Of the reports of one case, that of the longest runs with an agent.
fn longest(case: &[Report]) -> Option<&Report> {
    case.iter().rev().find(|report| report.runs_with(OURS).next().is_some())
}

fn summary(cases: &[&[Report]]) -> String {
    let columns: Vec<&str> = [Remedy::None.as_str(), OURS].into_iter().chain(OTHERS).collect();
    let mut table = format!("| case | server | what happens | {} |\n", columns.join(" | "));
    table += &format!("| --- | --- | --- |{}\n", " ---: |".repeat(columns.len()));
    for report in cases.iter().map(|case| shortest(case)) {
        let rows = rows(report);
        let goodput = |remedy: &&str| {
            let row = rows.iter().find(|row| row.remedy == *remedy);
            row.and_then(|row| row.goodput).map_or("-".to_owned(), |spread| format!("{:.3}", spread.median))
        };
        let goodputs: Vec<String> = columns.iter().map(goodput).collect();
        let name = &report.case;
        table += &format!(
            "| [{name}](#{name}) | {} | {} | {} |\n",
            report.server,
            report.title,
            goodputs.join(" | ")
        );
    }
    table
}

fn verdict(cases: &[&[Report]]) -> String {
    let ran: Vec<&Report> = cases.iter().filter_map(|case| longest(case)).collect();
    let hold = || ran.iter().filter(|report| holds_by_medians(report));
    let holds = |report: &Report| {
        report.runs_with(OURS).all(|run| run.falls_short(report.culprit.as_deref()).is_empty())
    };
    let always = ran.iter().filter(|report| holds(report));
    let right = ran.iter().filter(|report| report.did_no_harm());
    let against: Vec<(&[Report], Beside)> =
        cases.iter().filter_map(|&case| Some((case, Beside::of(shortest(case))?))).collect();
    let behind: Vec<String> = against
        .iter()
        .filter(|(_, beside)| beside.ours < beside.best * (1.0 - BEHIND))
        .map(|(case, _)| format!("{} ({})", case[0].case, Beside::at_all_lengths(case)))
        .collect();
    let ahead = against.iter().filter(|(_, beside)| beside.ours >= beside.best * (1.0 + AHEAD)).count();
    format!(
        "With the agent throughput is to be at least {:.0} % of the undisturbed, p99 at most {P99} times as long without two seconds from the beginning of the trouble on, \
         and less than {DROPPED_PCT} % of the requests unanswered; the culprit is to be ended and nobody else, and the agent to act within {ACTION_S} s after the objective is missed. \
         Where nobody is to blame nobody is to be ended, which is all. \
         Of the longer runs where there are two lengths, all of it holds by the medians in {} of {} cases, {} of the {} of Table 2 among them, in every run in {}; \
         who was ended and how many were answered in every run in {}.\n\n\
         Beside the best of {}: at least {:.0} % ahead in {ahead} of {} cases; more than {:.0} % behind in {}.\n",
        100.0 * THROUGHPUT,
        hold().count(),
        ran.len(),
        hold().filter(|report| report.paper.is_some()).count(),
        ran.iter().filter(|report| report.paper.is_some()).count(),
        always.count(),
        right.count(),
        OTHERS.join(", "),
        100.0 * AHEAD,
        against.len(),
        100.0 * BEHIND,
        if behind.is_empty() { "none".to_owned() } else { behind.join(", ") },
    )
}

/// Goodput of the median run with an agent, and with the best of the others.
struct Beside {
    ours: f64,
    best: f64,
}

impl Beside {
    /// Nothing where one of them did not run.
    fn of(report: &Report) -> Option<Beside> {
        let rows = rows(report);
        let of = |remedy: &str| Some(rows.iter().find(|row| row.remedy == remedy)?.goodput?.median);
        Some(Beside { ours: of(OURS)?, best: OTHERS.iter().filter_map(|other| of(other)).reduce(f64::max)? })
    }

    fn at_all_lengths(case: &[Report]) -> String {
        let each = case.iter().filter_map(|report| {
            let Beside { ours, best } = Beside::of(report)?;
            Some(format!("{ours:.3} to {best:.3} in {} s", report.seconds))
        });
        each.collect::<Vec<_>>().join(", ")
    }
}

/// Whether the medians of throughput, p99 and the first action are what they are to be where there is a culprit, and no run did what it must not.
fn holds_by_medians(report: &Report) -> bool {
    let rows = rows(report);
    let ours = rows.iter().find(|row| row.remedy == OURS);
    let is_slow = |row: &Row<'_>| {
        let throughput = row.throughput.map_or(0.0, |throughput| throughput.median);
        let median = |spread: Option<Spread>| spread.map(|spread| spread.median);
        !slow(throughput, median(row.p99_without_2s), median(row.acted_s)).is_empty()
    };
    ours.is_some_and(|row| report.culprit.is_none() || !is_slow(row)) && report.did_no_harm()
}

fn section(case: &[Report]) -> String {
    let report = shortest(case);
    let mut title = report.title.chars();
    let first: String = title.next().into_iter().flat_map(char::to_uppercase).collect();
    let mut text = format!("\n## {}\n\n{first}{}.", report.case, title.as_str());
    if let Some(paper) = &report.paper {
        text += &format!(" (In Table 2 of the paper on ATROPOS: {paper}.)");
    }
    if let Some(version) = &report.version {
        text += &format!(" {version}; {} requests/s.", report.rate_per_s);
    }
    text += &match &report.culprit {
        Some(culprit) => format!(" To be ended: `{culprit}`."),
        None => " To be ended: nobody.".to_owned(),
    };
    text += "\n";
    case.iter().for_each(|report| text += &runs(report));
    text
}

/// What came of the runs of one length.
fn runs(report: &Report) -> String {
    let mut text = String::new();
    if !report.repetitions.is_empty() {
        let Report { case, place, seconds, .. } = report;
        let times = match report.repetitions.len() {
            1 => "One run".to_owned(),
            times => format!("{times} runs"),
        };
        text += &format!("\n{times} of {seconds} s, 99 % of the requests within {}", objective(report));
        text += &format!("{}:\n\n", origin(report));
        text += &format!("![goodput and p99 over time](cases/{place}{case}.svg)\n\n");
        text += "| remedy | goodput | throughput | p99 | p99 without 2 s | dropped, % | acted, s | ended, s | recovery, s | who was ended |\n";
        text += "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n";
        rows(report).iter().for_each(|row| text += &line(row));
        for remedy in &report.not_applicable {
            text += &format!("| {remedy} | has nothing for this case | | | | | | | | |\n");
        }
    }
    let all = report.runs_with(OURS).count();
    let short = report.repetitions.iter().flat_map(|repetition| {
        let ours = repetition.remedies.iter().filter(|run| run.remedy == OURS);
        ours.map(|run| (repetition.seed, run.falls_short(report.culprit.as_deref())))
            .filter(|(_, short)| !short.is_empty())
    });
    let short: Vec<String> =
        short.map(|(seed, short)| format!("with seed {seed} {}", short.join(", "))).collect();
    text += &match (&report.failed, short.as_slice()) {
        (Some(why), _) => format!("\nDid not run to its end: {why}.\n"),
        (None, []) if all > 0 => "\nAll that must hold does.\n".to_owned(),
        (None, []) => String::new(),
        (None, short) => format!("\nDoes not hold in {} of {all} runs: {}.\n", short.len(), short.join("; ")),
    };
    text
}

/// Of what commits the runs are, how they were asked for and how long one took with each remedy, as far as that was written down.
fn origin(report: &Report) -> String {
    let commits: BTreeSet<&str> = report.repetitions.iter().filter_map(|it| it.commit.as_deref()).collect();
    let took = Spread::of(report.repetitions.iter().map(|it| it.took_s));
    let mut words = Vec::new();
    if !commits.is_empty() {
        words.push(format!("at {}", commits.into_iter().collect::<Vec<_>>().join(", ")));
    }
    words.extend(report.command.as_ref().map(|command| format!("`{command}`")));
    words.extend(took.map(|took| format!("{:.0} s for a repetition", took.median)));
    if words.is_empty() { String::new() } else { format!(" ({})", words.join("; ")) }
}

/// What 99 % of the requests are promised.
fn objective(report: &Report) -> String {
    let slo = report.slo_ms;
    match report.slo_times {
        None => format!("{slo} ms"),
        Some(times) => {
            format!("{times} times what they take undisturbed, which is {slo:.1} ms with the first seed")
        }
    }
}

fn line(row: &Row<'_>) -> String {
    let Row {
        remedy,
        goodput,
        throughput,
        p99,
        p99_without_2s,
        dropped_pct,
        acted_s,
        action_s,
        recovery_s,
        ended,
        ..
    } = row;
    format!(
        "| {remedy} | {} | {} | {} | {} | {} | {} | {} | {} | {ended} |\n",
        cell(*goodput, 3),
        cell(*throughput, 3),
        cell(*p99, 1),
        cell(*p99_without_2s, 2),
        cell(*dropped_pct, 3),
        cell(*acted_s, 2),
        cell(*action_s, 2),
        cell(*recovery_s, 2),
    )
}

/// The median, and from where to where it was if that can be seen.
fn cell(spread: Option<Spread>, digits: usize) -> String {
    let Some(Spread { median, low, high }) = spread else { return "-".to_owned() };
    let [median, low, high] = [median, low, high].map(|value| format!("{value:.digits$}"));
    if low == high { median } else { format!("{median} ({low} to {high})") }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::judge::Judged;
    use crate::report::{Machine, Repetition};

    fn run(remedy: &str, goodput_norm: f64) -> Judged {
        Judged {
            remedy: remedy.to_owned(),
            goodput_norm,
            throughput_norm: goodput_norm,
            p99_norm: Some(3.0),
            p99_norm_without_2s: Some(1.0),
            dropped_pct: 0.0,
            slo_pct: 99.0,
            missed_s: Some(0.1),
            recovery_s: None,
            acted_s: None,
            action_s: Some(0.2),
            right: true,
            requests_ended: 0,
            throughput_per_s: 400.0,
            p50_ms: Some(1.0),
            p99_ms: Some(2.0),
            tasks: Vec::new(),
            cancelled: Vec::new(),
            in_time_by_second: vec![400],
            p99_ms_by_second: vec![Some(2.0)],
        }
    }

    /// Of three runs.
    pub(crate) fn report(case: &str, ours: [f64; 3], timeout: f64) -> Report {
        let repetition = |(seed, ours)| Repetition {
            seed,
            commit: None,
            took_s: None,
            undisturbed: run("undisturbed", 1.0),
            remedies: vec![run("none", 0.1), run(OURS, ours), run("timeout", timeout)],
        };
        let machine = Machine {
            processor: "Abacus".to_owned(),
            processors: 2,
            memory_gib: 4,
            kernel: "6.1".to_owned(),
        };
        Report {
            case: case.to_owned(),
            title: "somebody holds a lock".to_owned(),
            paper: None,
            culprit: Some("report".to_owned()),
            server: "postgres".to_owned(),
            version: Some("PostgreSQL 15".to_owned()),
            machine,
            command: None,
            seconds: 8.0,
            warm_up_s: 3.0,
            trigger_s: 2.0,
            rate_per_s: 400.0,
            slo_ms: 50.0,
            slo_times: None,
            repetitions: (1..).zip(ours).map(repetition).collect(),
            not_applicable: vec!["native".to_owned()],
            failed: None,
            place: String::new(),
        }
    }

    #[test]
    fn a_case_of_two_lengths_is_judged_by_the_longer_and_compared_by_the_shorter() {
        let mut long = report("c9", [0.97; 3], 0.5);
        (long.seconds, long.place) = (120.0, "long/".to_owned());
        (long.slo_ms, long.slo_times) = (12.34, Some(1.2));
        long.repetitions.iter_mut().for_each(|it| it.remedies.retain(|run| run.remedy == OURS));
        let page = page(vec![long, report("c9", [0.90; 3], 0.5)]);
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text:?} in {page}"));
        at("| [c9](#c9) | postgres | somebody holds a lock | 0.100 | 0.900 | - | 0.500 | - |\n");
        at(
            "by the medians in 1 of 1 cases, 0 of the 0 of Table 2 among them, in every run in 1; who was ended and how many were answered in every run in 1.",
        );
        at("at least 10 % ahead in 1 of 1 cases");
        let short = at("3 runs of 8 s, 99 % of the requests within 50 ms:");
        let long = at(
            "3 runs of 120 s, 99 % of the requests within 1.2 times what they take undisturbed, which is 12.3 ms with the first seed:",
        );
        assert!(short < at("cases/c9.svg") && at("cases/c9.svg") < long);
        assert!(at("throughput 0.900 of 0.95") < at("cases/long/c9.svg"));
        assert_eq!(page.matches("## c9").count(), 1);
    }

    #[test]
    fn where_nobody_is_to_blame_a_page_says_so() {
        let page = page(vec![Report { culprit: None, ..report("c9", [0.1; 3], 0.1) }]);
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text:?} in {page}"));
        at("To be ended: nobody.\n");
        at("All that must hold does.\n");
        at("by the medians in 1 of 1 cases");
    }

    #[test]
    fn who_is_behind_is_told_at_every_length_with_others() {
        let mut long = report("c9", [0.99; 3], 0.995);
        (long.seconds, long.place) = (120.0, "long/".to_owned());
        let page = page(vec![long, report("c9", [0.98; 3], 0.995)]);
        let told = "more than 1 % behind in c9 (0.980 to 0.995 in 8 s, 0.990 to 0.995 in 120 s).\n";
        assert!(page.contains(told), "{page}");
    }

    #[test]
    fn a_page_tells_medians_and_what_does_not_hold() {
        let mut none = report("c3", [1.0; 3], 1.0);
        (none.repetitions, none.failed) = (Vec::new(), Some("there is no MariaDB".to_owned()));
        let paper = Some("c10".to_owned());
        let well = Report { paper, ..report("c10", [0.99, 0.90, 0.97], 0.5) };
        let mut late = report("c9", [0.97, 0.98, 0.99], 0.995);
        late.repetitions.iter_mut().for_each(|it| it.remedies[1].acted_s = Some(0.6));
        late.command = Some("plimsoll case run c9".to_owned());
        late.repetitions[0].commit = Some("0123456789".to_owned());
        late.repetitions[0].took_s = Some(99.6);
        let page = page(vec![well, late, none]);
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text:?} in {page}"));
        assert!(at("\n## c3\n") < at("\n## c9\n") && at("\n## c9\n") < at("\n## c10\n"));
        at("- Machine: 2 x Abacus, 4 GiB, Linux 6.1\n");
        at("- Runs: 3 x 8 s after 3 s, the trigger at 2 s.");
        at("| [c10](#c10) | postgres | somebody holds a lock | 0.100 | 0.970 | - | 0.500 | - |\n");
        at(
            "| plimsoll | 0.970 (0.900 to 0.990) | 0.970 (0.900 to 0.990) | 3.0 | 1.00 | 0.000 | - | 0.20 | - |  |\n",
        );
        at("Does not hold in 1 of 3 runs: with seed 2 throughput 0.900 of 0.95.\n");
        at(
            "by the medians in 1 of 2 cases, 1 of the 1 of Table 2 among them, in every run in 0; who was ended and how many were answered in every run in 2.",
        );
        at("at least 10 % ahead in 1 of 2 cases; more than 1 % behind in c9 (0.980 to 0.995 in 8 s).");
        at("Did not run to its end: there is no MariaDB.\n");
        at(
            "3 runs of 8 s, 99 % of the requests within 50 ms (at 0123456789; `plimsoll case run c9`; 100 s for a repetition):\n",
        );
        at("Does not hold in 3 of 3 runs: with seed 1 first action after 0.60 s of 0.5; with seed 2");
        at("![goodput and p99 over time](cases/c9.svg)");
    }
}
