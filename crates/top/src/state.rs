//! What the user looks at, and what keys do to it.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::order::{Sort, sort};
use crate::row::{By, Key, Row, is_chosen, rows};
use crate::scene::Scene;

/// The longest name that may be looked for.
const MAX_FILTER: usize = 64;

/// What a key asks of the program, apart from showing itself anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing more.
    None,
    /// To end.
    Quit,
    /// To stop until the shell goes on with it.
    Suspend,
}

/// What is looked at.
#[derive(Debug, Default)]
pub struct State {
    /// What a row is.
    pub by: By,
    /// What rows are sorted by.
    pub sort: Sort,
    /// Only what is part of this is shown, and where to go back to from it.
    pub within: Vec<(Key, By)>,
    /// Only rows are shown whose name, number or path holds this, upper and lower case alike.
    pub filter: String,
    /// Whether keys are typed into the filter.
    pub typing: bool,
    /// Whether the help is shown.
    pub help: bool,
    /// Whether the picture stands still.
    pub paused: bool,
    /// The processes to which all is limited; all where there are none.
    pub pids: Vec<u32>,
    /// The rows that are shown.
    pub rows: Vec<Row>,
    /// The first row on the screen.
    pub offset: usize,
    /// The row that is looked at, and where it was: it may have gone. The first one, whichever that is, until somebody chooses.
    selected: Option<(Key, usize)>,
    /// How many rows the screen holds.
    page: usize,
}

impl State {
    /// Looks at these processes, or at all where there are none.
    pub fn new(by: By, sort: Sort, pids: Vec<u32>) -> State {
        State { by, sort, pids, ..State::default() }
    }

    /// Shows this scene. What was selected stays so, wherever it is sorted to.
    pub fn show(&mut self, scene: &Scene) {
        let within = |task: &&crate::scene::Task| {
            is_chosen(&self.pids, task.id.pid) && self.within.last().is_none_or(|(key, _)| key.holds(task))
        };
        let mut rows = rows(scene.tasks.iter().filter(within), self.by);
        let wanted = self.filter.to_lowercase();
        rows.retain(|row| wanted.is_empty() || haystack(row).contains(&wanted));
        self.rows = sort(rows, self.sort);
        if let (Some(now_at), Some((_, at))) = (self.selected(), &mut self.selected) {
            *at = now_at;
        }
    }

    /// The place of the row that is looked at among those shown. Where it has gone, that of who has taken its place.
    pub fn selected(&self) -> Option<usize> {
        let (key, at) = match &self.selected {
            Some((key, at)) => (Some(key), *at),
            None => (None, 0),
        };
        let found = key.and_then(|key| self.rows.iter().position(|row| row.key == *key));
        found.or_else(|| self.rows.len().checked_sub(1).map(|last| at.min(last)))
    }

    /// The row that is looked at.
    pub fn row(&self) -> Option<&Row> {
        self.rows.get(self.selected()?)
    }

    /// Says how many rows the screen holds, so that the one looked at is on it.
    pub fn fit(&mut self, page: usize) {
        self.page = page.max(1);
        let selected = self.selected().unwrap_or(0);
        let first = (selected + 1).saturating_sub(self.page);
        let last = self.rows.len().saturating_sub(self.page);
        self.offset = self.offset.clamp(first, selected.max(first)).min(last.max(first));
    }

    /// Takes a key.
    pub fn key(&mut self, key: KeyEvent, scene: &Scene) -> Action {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Action::Quit,
                KeyCode::Char('z') => Action::Suspend,
                _ => Action::None,
            };
        }
        if self.typing {
            self.type_in(key.code);
        } else if self.help {
            self.help = false;
        } else {
            match key.code {
                KeyCode::Char('q') => return Action::Quit,
                KeyCode::Char('h' | '?') | KeyCode::F(1) => self.help = true,
                KeyCode::Char('p') => self.look_by(By::Process),
                KeyCode::Char('t') => self.look_by(By::Thread),
                KeyCode::Char('g') => self.look_by(By::Group),
                KeyCode::Char('s') => self.sort = self.sort.next(),
                KeyCode::Char('1'..='5') => {
                    let KeyCode::Char(digit) = key.code else { return Action::None };
                    self.sort = Sort::ALL[digit as usize - '1' as usize];
                }
                KeyCode::Char('/') => self.typing = true,
                KeyCode::Char(' ') => self.paused = !self.paused,
                KeyCode::Enter | KeyCode::Right => self.enter(),
                KeyCode::Backspace | KeyCode::Left => self.leave(),
                KeyCode::Esc if self.filter.is_empty() => self.leave(),
                KeyCode::Esc => self.filter.clear(),
                KeyCode::Up | KeyCode::Char('k') => self.step(-1),
                KeyCode::Down | KeyCode::Char('j') => self.step(1),
                KeyCode::PageUp => self.step(-(self.page as isize)),
                KeyCode::PageDown => self.step(self.page as isize),
                // Whoever comes first from now on.
                KeyCode::Home => self.selected = None,
                KeyCode::End => self.step(isize::MAX),
                _ => return Action::None,
            }
        }
        self.show(scene);
        Action::None
    }

    fn type_in(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(char) if self.filter.len() < MAX_FILTER => self.filter.push(char),
            _ => {}
        }
    }

    fn look_by(&mut self, by: By) {
        self.by = by;
        self.within.clear();
        self.selected = None;
    }

    /// From a cgroup to its processes, from a process to its threads.
    fn enter(&mut self) {
        let by = match self.by {
            By::Group => By::Process,
            By::Process => By::Thread,
            By::Thread => return,
        };
        if let Some(row) = self.row() {
            self.within.push((row.key.clone(), self.by));
            self.by = by;
            self.selected = None;
            self.filter.clear();
        }
    }

    fn leave(&mut self) {
        if let Some((key, by)) = self.within.pop() {
            self.by = by;
            self.selected = Some((key, 0));
        }
    }

    fn step(&mut self, by: isize) {
        let Some(last) = self.rows.len().checked_sub(1) else { return };
        let at = self.selected().unwrap_or(0).saturating_add_signed(by).min(last);
        self.selected = Some((self.rows[at].key.clone(), at));
    }
}

/// All that a row may be found by.
fn haystack(row: &Row) -> String {
    let which = match &row.key {
        Key::Process(pid) => pid.to_string(),
        Key::Thread(id) => format!("{} {}", id.pid, id.tid),
        Key::Group(path) => path.clone(),
    };
    format!("{} {which}", row.name).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::task;

    fn scene() -> Scene {
        let tasks = vec![
            task(1, 1, "web", "/web", 400.0, 100.0),
            task(1, 2, "web-2", "/web", 400.0, 100.0),
            task(2, 2, "hog", "/batch", 900.0, 800.0),
            task(3, 3, "calm", "/", 100.0, 100.0),
        ];
        Scene { tasks, ..Scene::default() }
    }

    /// The state after these keys, on a screen of ten rows.
    fn after(scene: &Scene, keys: &[KeyCode]) -> State {
        let mut state = State::default();
        state.show(scene);
        for &code in keys {
            state.fit(10);
            assert_eq!(state.key(KeyEvent::new(code, KeyModifiers::NONE), scene), Action::None);
        }
        state
    }

    fn names(state: &State) -> Vec<&str> {
        state.rows.iter().map(|row| row.name.as_str()).collect()
    }

    fn chars(text: &str) -> Vec<KeyCode> {
        text.chars().map(KeyCode::Char).collect()
    }

    #[test]
    fn q_and_control_c_end_and_control_z_stops() {
        let scene = scene();
        let pressed = |code, modifiers| State::default().key(KeyEvent::new(code, modifiers), &scene);
        assert_eq!(pressed(KeyCode::Char('q'), KeyModifiers::NONE), Action::Quit);
        assert_eq!(pressed(KeyCode::Char('c'), KeyModifiers::CONTROL), Action::Quit);
        assert_eq!(pressed(KeyCode::Char('z'), KeyModifiers::CONTROL), Action::Suspend);
        assert_eq!(pressed(KeyCode::Char('c'), KeyModifiers::NONE), Action::None);
        let mut typing = State { typing: true, ..State::default() };
        let key = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
        assert_eq!((typing.key(key, &scene), typing.filter.as_str()), (Action::None, "q"));
        assert_eq!(
            typing.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), &scene),
            Action::Quit
        );
    }

    #[test]
    fn rows_are_sorted_by_what_was_asked_for() {
        let scene = scene();
        assert_eq!(names(&after(&scene, &[])), ["proc-1", "proc-2", "proc-3"]);
        assert_eq!(names(&after(&scene, &chars("3"))), ["proc-2", "proc-1", "proc-3"]);
        assert_eq!(after(&scene, &chars("ss")).sort, Sort::Actual);
    }

    #[test]
    fn names_numbers_and_paths_are_looked_for() {
        let scene = scene();
        assert_eq!(names(&after(&scene, &chars("t/WEB"))), ["web", "web-2"]);
        assert_eq!(names(&after(&scene, &chars("/3"))), ["proc-3"]);
        assert_eq!(names(&after(&scene, &chars("g/bat"))), ["batch"]);
        let typed = after(&scene, &[chars("/zz"), vec![KeyCode::Enter]].concat());
        assert!(typed.rows.is_empty() && !typed.typing && typed.selected().is_none());
        let cleared = after(&scene, &[chars("/zz"), vec![KeyCode::Enter, KeyCode::Esc]].concat());
        assert_eq!(names(&cleared).len(), 3);
        let corrected = after(&scene, &[chars("/zz"), vec![KeyCode::Backspace; 3]].concat());
        assert!(corrected.typing && corrected.filter.is_empty());
        assert_eq!(after(&scene, &[SLASH; 200]).filter.len(), MAX_FILTER);
    }

    const SLASH: KeyCode = KeyCode::Char('/');

    #[test]
    fn what_is_looked_at_stays_so_wherever_it_is_sorted_to() {
        let mut scene = scene();
        let mut state = after(&scene, &[KeyCode::Down]);
        assert_eq!(state.row().unwrap().name, "proc-2");
        scene.tasks[2].of.actual_ms_per_s = 10.0;
        state.show(&scene);
        assert_eq!((state.selected(), state.row().unwrap().name.as_str()), (Some(0), "proc-2"));
        scene.tasks.remove(2);
        state.show(&scene);
        assert_eq!(
            (state.selected(), state.row().unwrap().name.as_str()),
            (Some(0), "proc-1"),
            "who took its place"
        );
        // Nobody was chosen: whoever is the first.
        let state = after(&scene, &[KeyCode::Down, KeyCode::Home]);
        assert_eq!(state.row().unwrap().name, "proc-1");
    }

    #[test]
    fn the_row_that_is_looked_at_is_on_the_screen() {
        let tasks: Vec<_> = (1..=50).map(|pid| task(pid, pid, "x", "/", 100.0, f64::from(pid))).collect();
        let scene = Scene { tasks, ..Scene::default() };
        let seen = |keys: &[KeyCode]| {
            let mut state = after(&scene, keys);
            state.fit(10);
            (state.offset, state.selected().unwrap())
        };
        assert_eq!(seen(&[]), (0, 0));
        assert_eq!(seen(&[KeyCode::Down; 9]), (0, 9));
        assert_eq!(seen(&[KeyCode::Down; 10]), (1, 10));
        assert_eq!(seen(&[KeyCode::End]), (40, 49));
        assert_eq!(seen(&[KeyCode::End, KeyCode::Down, KeyCode::Up]), (40, 48));
        assert_eq!(seen(&[KeyCode::PageDown, KeyCode::PageDown]), (11, 20));
        assert_eq!(seen(&[KeyCode::End, KeyCode::Home]), (0, 0));
        assert_eq!(seen(&[KeyCode::Up]), (0, 0));
    }

    #[test]
    fn one_goes_into_cgroups_and_processes_and_back() {
        let scene = scene();
        let mut state = after(&scene, &chars("g"));
        assert_eq!(names(&state), ["/", "web", "batch"]);
        for code in [KeyCode::Down, KeyCode::Enter] {
            state.key(KeyEvent::new(code, KeyModifiers::NONE), &scene);
        }
        assert_eq!((state.by, names(&state)), (By::Process, vec!["proc-1"]));
        state.key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE), &scene);
        assert_eq!((state.by, names(&state)), (By::Thread, vec!["web", "web-2"]));
        state.key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE), &scene);
        assert_eq!((state.by, state.within.len()), (By::Thread, 2), "there is nothing in a thread");
        for _ in 0..3 {
            state.key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE), &scene);
        }
        assert_eq!((state.by, state.row().unwrap().name.as_str()), (By::Group, "web"));
        assert!(state.within.is_empty());
    }

    #[test]
    fn only_the_processes_that_were_asked_for_are_shown() {
        let mut state = State { pids: vec![3, 99], ..State::default() };
        state.show(&scene());
        assert_eq!(names(&state), ["proc-3"]);
    }
}
