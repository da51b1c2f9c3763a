//! The board without a terminal: events in, frames and questions out.

use cob_types::status::{ClusterStatus, HostStatus};
use cob_types::{GenerationNumber, HostName};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use serde_json::{Value, json};

use super::draw::draw;
use super::question::Question;
use super::state::{Board, Effect, Event, News};
use crate::page::message::{Cluster, Judged};
use crate::page::worker::Answer;
use crate::testing::{NOW, cluster, failed, host, id, lock, moving, s, settled, waiting};

/// The time of this machine: that of the hosts.
const NOW_MS: u64 = NOW / 1_000_000;

fn news(hosts: Vec<HostStatus>) -> News {
    let status = cluster(hosts);
    let cluster = Cluster {
        verdict: Judged::Not,
        sentence: "The cluster is not converged.".to_owned(),
        reasons: vec!["n1: 1 change object not in its desired state: n1/db".to_owned()],
        next: Some("cobctl explain n1/db".to_owned()),
        generation: Some(GenerationNumber(7)),
        newest: Some(GenerationNumber(7)),
        depot: true,
    };
    let notes = vec![String::new(), "n1 refused 3 requests without a valid key".to_owned()];
    News { shown: status.clone(), status, cluster, notes, forecast: None, now_ms: NOW_MS }
}

/// `n1/db` has failed, and two change objects wait for it.
fn broken() -> Vec<HostStatus> {
    let n1 = vec![failed("n1/db", "down", "up"), settled("n1/ip", "up")];
    let n2 = vec![waiting("n2/app", "down", "up", vec![lock("n1/db", "up")]), moving("n2/cron", "off", "on")];
    let n3 = vec![waiting("n3/lb", "down", "up", vec![lock("n2/app", "up")])];
    vec![host("n1", 7, n1), host("n2", 7, n2), host("n3", 7, n3)]
}

fn board(size: (u16, u16), news: News) -> Board {
    let mut board = Board::default();
    board.take(Event::Size(size.0, size.1));
    board.take(Event::News(Box::new(news)));
    board
}

fn press(board: &mut Board, keys: &str) -> Vec<Effect> {
    let code = |key: &str| match key {
        "Enter" => KeyCode::Enter,
        "Esc" => KeyCode::Esc,
        "Down" => KeyCode::Down,
        "End" => KeyCode::End,
        "PgDn" => KeyCode::PageDown,
        "Tab" => KeyCode::Tab,
        one => KeyCode::Char(one.chars().next().expect("a key")),
    };
    let keys = keys.split(' ').map(|key| KeyEvent::new(code(key), KeyModifiers::NONE));
    keys.flat_map(|key| board.take(Event::Key(key))).collect()
}

fn terminal(board: &Board, has_colour: bool) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(board.size.0, board.size.1)).expect("a terminal");
    terminal.draw(|frame| draw(board, frame, has_colour)).expect("a frame");
    terminal
}

/// The lines of a frame.
fn frame(board: &Board) -> String {
    let terminal = terminal(board, true);
    let cells = terminal.backend().buffer();
    let lines = cells.content.chunks(usize::from(board.size.0)).map(|row| {
        let mut text = String::new();
        let mut rest = 0_usize;
        for cell in row {
            // The cell behind a wide character is a part of it.
            if rest == 0 {
                text.push_str(cell.symbol());
                rest = super::text::width(cell.symbol());
            }
            rest = rest.saturating_sub(1);
        }
        text.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn answer(board: &mut Board, question: Question, answer: Value) {
    let answer = Answer { exit: 0, answer, problems: Vec::new(), failure: None };
    board.take(Event::Answer(question, Some(answer)));
}

fn entry(seq: u64, event: &str, cob: &str, ts_ns: u64) -> Value {
    json!({"ts_ns": ts_ns, "host": cob.split('/').next(), "seq": seq, "lamport": seq, "generation": 7, "cob": cob,
        "event": event, "from": "down", "to": "up", "attempt": 1, "ok": (event == "end").then_some(true)})
}

#[test]
fn the_first_view_has_the_verdict_the_next_command_and_the_hosts() {
    insta::assert_snapshot!(frame(&board((80, 24), news(broken()))));
}

#[test]
fn problems_are_the_first_change_objects() {
    let mut board = board((80, 14), news(broken()));
    press(&mut board, "2 Down");
    insta::assert_snapshot!(frame(&board));
    board.take(Event::Size(200, 10));
    insta::assert_snapshot!(frame(&board));
}

#[test]
fn a_change_object_is_shown_with_the_chain_to_the_first_cause() {
    let mut board = board((80, 30), news(broken()));
    press(&mut board, "2 / l b Enter Enter");
    let lb = id("n3/lb");
    answer(
        &mut board,
        Question::Output(lb.clone()),
        json!({"cob": "n3/lb", "output": "port\t80\u{1b}[2J\nno upstream\n"}),
    );
    let history = json!([entry(1, "start", "n3/lb", NOW - s(9)), entry(2, "end", "n3/lb", NOW - s(8))]);
    answer(&mut board, Question::History(lb), history);
    insta::assert_snapshot!(frame(&board));
    press(&mut board, "c");
    assert_eq!(board.opened.last().map(|(id, _)| id.to_string()).as_deref(), Some("n1/db"), "the first cause");
    assert!(frame(&board).contains("n1/db  ← n3/lb"), "{}", frame(&board));
    press(&mut board, "Esc Esc");
    assert!(board.opened.is_empty());
}

#[test]
fn each_step_of_a_chain_opens_its_change_object() {
    let mut board = board((80, 40), news(broken()));
    press(&mut board, "2 / n 3 Enter Enter");
    let lines = frame(&board);
    let step = lines.lines().skip(2).position(|line| line.contains(" 2. ")).expect("the second step");
    press(&mut board, &vec!["Down"; step].join(" "));
    press(&mut board, "Enter");
    assert_eq!(board.opened.last().map(|(id, _)| id.to_string()).as_deref(), Some("n2/app"));
}

#[test]
fn the_filter_selects_by_words_and_escape_clears_it() {
    let mut board = board((80, 10), news(broken()));
    press(&mut board, "/ w a i t i n g");
    let ids = |board: &Board| board.list.iter().map(|one| one.id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(&board), ["n2/app", "n3/lb"]);
    assert!(frame(&board).contains("/waiting▏ 2 objects"), "{}", frame(&board));
    press(&mut board, "Enter Esc");
    assert_eq!(board.list.len(), 5);
    press(&mut board, "/ q");
    assert!(frame(&board).contains("No change object has these words."), "`q` is a letter here");
    press(&mut board, "Esc 1 Down Down Down Down Down");
    assert!(frame(&board).contains("▸ ✗ n1"), "the host with problems is selected first: {}", frame(&board));
    press(&mut board, "Enter");
    assert_eq!(ids(&board), ["n1/db", "n1/ip"], "a host opens its change objects");
}

#[test]
fn the_cursor_stays_on_its_change_object() {
    let mut board = board((80, 24), news(broken()));
    press(&mut board, "2 Down Down");
    let selected = board.list[board.cursor().at].id.clone();
    assert_eq!(selected, id("n3/lb"));
    let mut other = broken();
    other[1].cobs[0] = failed("n2/app", "down", "up");
    other[1].cobs[1] = failed("n2/cron", "off", "on");
    board.take(Event::News(Box::new(news(other))));
    assert_eq!(board.list[board.cursor().at].id, selected);
    assert_eq!(board.cursor().at, 3, "the new failures come before it");
}

#[test]
fn change_objects_of_a_lost_host_are_unknown() {
    let mut board = board((80, 24), news(broken()));
    let mut lost = broken();
    lost[0] = crate::gather::unreachable(HostName::new("n1").expect("a name"), "connection refused".to_owned());
    board.take(Event::News(Box::new(news(lost))));
    press(&mut board, "2");
    let lines = frame(&board);
    assert!(lines.contains("?U n1/db"), "{lines}");
    press(&mut board, "/ d b Enter Enter");
    let lines = frame(&board);
    assert!(lines.contains("its host does not answer: connection refused"), "{lines}");
}

#[test]
fn the_keys_are_explained_and_any_key_hides_them() {
    let mut board = board((80, 24), news(broken()));
    press(&mut board, "?");
    insta::assert_snapshot!(frame(&board));
    assert_eq!(press(&mut board, "2"), [], "the key only hides the help");
    assert_eq!(board.at, 0);
    press(&mut board, "? x");
    assert!(!board.has_help, "a key without a meaning, too");
    assert_eq!(press(&mut board, "q"), [Effect::Quit]);
}

fn switching() -> ClusterStatus {
    let mut hosts = broken();
    for host in &mut hosts[1..] {
        host.generation = Some(GenerationNumber(6));
        host.switching_to = Some(GenerationNumber(7));
    }
    cluster(hosts)
}

fn plan() -> Value {
    let step = |at: u64, cob: &str, from: &str, to: &str| {
        json!({"id": at, "cob": cob, "from": from, "to": to, "begin_us": at * 2_000_000, "end_us": (at + 1) * 2_000_000,
            "after": [], "lag_us": 0, "slack_us": 0, "stage": 1, "why": {"because": "content"},
            "duration": {"min": 1, "median": 1, "p90": 1}, "known": true})
    };
    let interrupted =
        json!([{"cob": "n3/lb", "begin_us": 0, "end_us": 4_000_000, "in_place": false, "why": {"because": "content"}}]);
    json!({"format": 1, "from": 6, "to": 7, "moved": [], "groups": [], "untouched_hosts": 0, "stages": [],
        "transitions": [step(0, "n2/cron", "off", "on"), step(1, "n2/app", "down", "up"), step(2, "n3/lb", "down", "up")],
        "interrupted": interrupted, "irreversible": [], "critical_path": [], "forecast": {"end_us": 6_000_000,
        "p50_us": 6_000_000, "p90_us": 7_000_000, "runs": 0, "seed": 1, "known": 3, "converges": true}})
}

#[test]
fn a_switch_is_shown_with_its_forecast_steps_and_interruptions() {
    let hosts = switching().hosts;
    let mut board = board((80, 30), news(hosts.clone()));
    assert!(board.asked.contains_key(&Question::Plan(GenerationNumber(7))), "the first view has the forecast, too");
    let asked = press(&mut board, "3");
    assert!(asked.contains(&Effect::Ask(Question::Replay(GenerationNumber(7)))), "{asked:?}");
    answer(&mut board, Question::Plan(GenerationNumber(7)), plan());
    // The history knows that `n1/ip` was away, and the forecast knows the later interruptions.
    let away = |mut entry: Value| {
        (entry["from"], entry["to"]) = (json!("up"), json!("down"));
        entry
    };
    let stops = [away(entry(1, "start", "n1/ip", NOW - s(12))), away(entry(2, "end", "n1/ip", NOW - s(11)))];
    let starts = [entry(3, "start", "n1/ip", NOW - s(9)), entry(4, "end", "n1/ip", NOW - s(7))];
    let made = json!([stops[0], stops[1], starts[0], starts[1], entry(5, "activate", "n1/ip", NOW)]);
    answer(&mut board, Question::Replay(GenerationNumber(7)), made);
    insta::assert_snapshot!(frame(&board));
    assert!(frame(&board).contains("n1/ip  was away for 5.0 s"), "{}", frame(&board));
    press(&mut board, "1");
    let lines = frame(&board).replace("\n    ", " ");
    assert!(lines.contains("forecast: ends at 00:16:46Z, in 6.0 s"), "{lines}");
    // A later forecast has no past interruptions.
    let mut later = plan();
    later["interrupted"] = json!([]);
    answer(&mut board, Question::Plan(GenerationNumber(7)), later);
    assert_eq!(board.interrupted.keys().map(ToString::to_string).collect::<Vec<_>>(), ["n3/lb"]);
    let ended =
        hosts.into_iter().map(|one| HostStatus { generation: Some(GenerationNumber(7)), switching_to: None, ..one });
    board.take(Event::News(Box::new(news(ended.collect()))));
    press(&mut board, "3");
    assert!(frame(&board).contains("No switch runs."), "{}", frame(&board));
}

#[test]
fn a_failed_question_says_why_and_is_asked_again_later() {
    let mut board = board((120, 24), news(switching().hosts));
    let plan = Question::Plan(GenerationNumber(7));
    let failure = Some(json!({"error": "a plan needs the depot", "causes": ["none is known"], "hints": []}));
    let failed = Answer { exit: 2, answer: Value::Null, problems: Vec::new(), failure };
    board.take(Event::Answer(plan.clone(), Some(failed)));
    press(&mut board, "3");
    assert!(frame(&board).contains("no forecast: a plan needs the depot: none is known"), "{}", frame(&board));
    let ask = Effect::Ask(plan);
    assert!(!board.take(Event::Tick(NOW_MS + 60_000)).contains(&ask), "nothing has changed");
    let mut other = switching().hosts;
    other[2].cobs[0] = moving("n3/lb", "down", "up");
    let asked = board.take(Event::News(Box::new(News { now_ms: NOW_MS + 60_000, ..news(other.clone()) })));
    assert!(asked.contains(&ask), "{asked:?}");
    other[2].cobs[0] = settled("n3/lb", "up");
    let asked = board.take(Event::News(Box::new(News { now_ms: NOW_MS + 120_000, ..news(other) })));
    assert!(!asked.contains(&ask), "the answer is still to come: {asked:?}");
}

#[test]
fn every_view_fits_every_size() {
    let mut hosts = switching().hosts;
    hosts[0].cobs.extend((0..40).map(|n| failed(&format!("n1/service/a-long-name-{n}"), "down", "up")));
    for keys in ["1", "2", "3", "?", "2 Enter", "2 Enter c", "/ x", "2 / n", "2 End", "2 PgDn Enter PgDn End"] {
        let mut board = board((80, 24), news(hosts.clone()));
        press(&mut board, keys);
        answer(&mut board, Question::Plan(GenerationNumber(7)), plan());
        for wide in (1..50).chain([80, 200]) {
            for high in [1, 2, 3, 4, 5, 10, 24, 100] {
                board.take(Event::Size(wide, high));
                let lines = frame(&board);
                assert_eq!(lines.lines().count().max(1), usize::from(high).min(lines.lines().count().max(1)), "{keys}");
                let cursor = board.cursor();
                assert!(
                    (cursor.first..cursor.first + board.room()).contains(&cursor.at),
                    "{keys}: the cursor is shown"
                );
            }
        }
    }
}

#[test]
fn without_colours_shapes_and_letters_remain() {
    let mut board = board((80, 24), news(broken()));
    press(&mut board, "2");
    let colours = |has_colour| {
        let drawn = terminal(&board, has_colour);
        drawn
            .backend()
            .buffer()
            .content
            .iter()
            .filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
            .count()
    };
    assert!(colours(true) > 0);
    assert_eq!(colours(false), 0);
    let lines = frame(&board);
    for mark in ["✗F n1/db", "◦W n2/app", "▶M n2/cron", "✓S n1/ip"] {
        assert!(lines.contains(mark), "{mark}: {lines}");
    }
}
