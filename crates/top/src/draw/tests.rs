//! What is on the screen of hosts that never were.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};

use plimsoll_cpufutures::Taker as Taken;

use super::*;
use crate::order::Sort;
use crate::row::tests::task;
use crate::scene::{Reader, Task};
use crate::takers::takers;

/// Two CPUs: a service, a job that takes what it needs, and some who hardly want anything.
fn scene() -> Scene {
    let mut tasks = vec![
        task(300, 300, "shopd", "/shop.slice/shopd.service", 60.0, 55.0),
        task(300, 301, "worker-0", "/shop.slice/shopd.service", 900.0, 300.0),
        task(300, 302, "worker-1", "/shop.slice/shopd.service", 900.0, 150.0),
        task(412, 412, "ffmpeg", "/batch.slice", 990.0, 760.0),
        task(412, 413, "ffmpeg:av1", "/batch.slice", 990.0, 700.0),
        task(500, 500, "stuckd", "/batch.slice", 40.0, 0.0),
        task(600, 600, "logd", "/", 0.4, 0.1),
        task(601, 601, "sleepd", "/", 0.0, 0.0),
    ];
    for (at, leader) in [(0, 0), (1, 0), (2, 0), (3, 3), (4, 3), (5, 5), (6, 6), (7, 7)] {
        tasks[at].process = tasks[leader].comm.clone();
    }
    tasks[4].of.low_confidence = true;
    tasks[1].of.predicted_ms_per_s = 450.0;
    let reader = Reader { name: "bpf".into(), cost_pct: 0.123, readings_per_s: 10.0 };
    Scene { cpus: 2, tasks, reader }
}

fn history() -> History {
    let mut history = History::default();
    let mut scene = scene();
    for second in 0..40 {
        // The job comes in the middle.
        let slowed = if second < 20 { 1.0 } else { 1.0 + f64::from(second - 20) / 4.0 };
        for task in &mut scene.tasks[1..3] {
            task.of.actual_ms_per_s = task.of.desired_ms_per_s / slowed;
        }
        history.add(&scene);
    }
    history
}

/// The screen after these keys.
fn screen(width: u16, height: u16, coloured: bool, keys: &[KeyCode]) -> Terminal<TestBackend> {
    let (scene, history) = (scene(), history());
    let mut state = State::default();
    state.show(&scene);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    for at in 0..=keys.len() {
        let ask = |victim: &plimsoll_cpufutures::TaskId| {
            let ran = scene.tasks.iter().filter(|task| task.of.actual_ms_per_s > 1.0 && task.id != *victim);
            let taken = |task: &Task| Taken { id: task.id, ms_per_s: task.of.actual_ms_per_s / 4.0 };
            ran.map(taken).collect()
        };
        let takers = state.row().map(|row| takers(&scene, &row.key, &ask)).unwrap_or_default();
        let palette = Palette::new(coloured);
        let shown = Shown { scene: &scene, history: &history, takers: &takers, note: "", palette };
        terminal.draw(|frame| draw(frame, &mut state, &shown)).unwrap();
        if let Some(&code) = keys.get(at) {
            state.key(KeyEvent::new(code, KeyModifiers::NONE), &scene);
        }
    }
    terminal
}

fn text(width: u16, height: u16, keys: &[KeyCode]) -> String {
    screen(width, height, false, keys).backend().to_string()
}

const SLASH: KeyCode = KeyCode::Char('/');

#[test]
fn processes_with_who_takes_the_cpu_from_the_slowest() {
    insta::assert_snapshot!(text(120, 24, &[]));
}

#[test]
fn an_ordinary_terminal() {
    insta::assert_snapshot!(text(80, 24, &[KeyCode::Down]));
}

#[test]
fn threads_sorted_by_what_they_waited() {
    insta::assert_snapshot!(text(120, 20, &[KeyCode::Char('t'), KeyCode::Char('5')]));
}

#[test]
fn cgroups_as_a_tree() {
    insta::assert_snapshot!(text(100, 18, &[KeyCode::Char('g')]));
}

#[test]
fn into_a_cgroup_and_into_a_process() {
    let keys = [KeyCode::Char('g'), KeyCode::Down, KeyCode::Down, KeyCode::Enter, KeyCode::Enter];
    insta::assert_snapshot!(text(100, 18, &keys));
}

#[test]
fn a_filter_is_typed() {
    insta::assert_snapshot!(text(80, 10, &[SLASH, KeyCode::Char('F'), KeyCode::Char('f')]));
}

#[test]
fn the_help() {
    insta::assert_snapshot!(text(80, 24, &[KeyCode::Char('?')]));
}

#[test]
fn small_terminals_show_what_matters_and_none_is_too_small_to_draw_on() {
    insta::assert_snapshot!(text(30, 8, &[]));
    for (width, height) in [0, 1, 23, 24, 31, 38]
        .into_iter()
        .flat_map(|width| [0, 1, 3, 4, 5, 6, 7, 13, 14, 15].map(|height| (width, height)))
    {
        for keys in [&[][..], &[KeyCode::Char('?')], &[KeyCode::Char('g'), KeyCode::End], &[SLASH]] {
            screen(width, height, true, keys);
        }
    }
}

#[test]
fn without_colours_the_slowest_are_still_told_apart() {
    let colours = |coloured: bool| {
        let terminal = screen(120, 24, coloured, &[]);
        let cells = terminal.backend().buffer().content().to_vec();
        let coloured = cells.iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count();
        let bold = cells.iter().filter(|cell| cell.modifier.contains(Modifier::BOLD)).count();
        (coloured > 0, bold > 0)
    };
    assert_eq!(colours(true), (true, true));
    assert_eq!(colours(false), (false, true));
}

#[test]
fn what_the_user_should_know_is_said() {
    let (scene, history) = (Scene::default(), History::default());
    let mut state = State::new(By::Process, Sort::Slowdown, vec![7]);
    state.paused = true;
    let mut terminal = Terminal::new(TestBackend::new(100, 6)).unwrap();
    let note = "recording ended at its limit";
    let shown = Shown { scene: &scene, history: &history, takers: &[], note, palette: Palette::new(false) };
    terminal.draw(|frame| draw(frame, &mut state, &shown)).unwrap();
    let said = terminal.backend().to_string();
    assert!(said.contains("PAUSED") && said.contains(note) && said.contains("of 1 chosen process"), "{said}");
}
