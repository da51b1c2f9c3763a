//! Maintenance windows and schedules, with real daemons and the wall clock.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cob_tests::cluster::Cluster;
use cob_types::GenerationNumber;
use cob_types::status::WindowWait;

use crate::words::{cobctl, run, told};
use crate::{PATIENCE, VERSIONED, cluster};

/// The longest wait for a minute of the wall clock, and for the actions that follow.
const MINUTES: Duration = Duration::from_secs(180);
const DAY: u64 = 24 * 3600;
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

fn day(second: u64) -> &'static str {
    DAYS[usize::try_from(second / DAY % 7).expect("a day")]
}

/// A window that is closed now, and for a day at least.
fn closed() -> String {
    format!("{} 00:00-24:00", day(now() + 2 * DAY))
}

/// Publishes a model of both hosts with their windows, the contents of their change objects, and further keys.
fn publish(cluster: &mut Cluster, [n1, n2]: [&str; 2], [a, b]: [u32; 2], more: &str) -> GenerationNumber {
    let window = |text: &str| if text.is_empty() { "[]".to_owned() } else { format!("{text:?}") };
    let text = format!(
        r#"
security: loopback-only
{more}
hosts:
  n1: {{address: "tcp://127.0.0.1:1", maintenance: {{window: {}}}}}
  n2: {{address: "tcp://127.0.0.1:2", maintenance: {{window: {}}}}}
cobs:
  n1/a: {{kind: versioned, content: {{v: {a}}}}}
  n2/b: {{kind: versioned, content: {{v: {b}}}}}
"#,
        window(n1),
        window(n2)
    );
    let model = cluster.write_model("model", &[("model.yaml", &text), VERSIONED]);
    cluster.generate(&model)
}

fn waits(cluster: &Cluster, host: &str) -> Option<WindowWait> {
    cluster.status(host).and_then(|status| status.window_wait)
}

fn ctl(cluster: &Cluster, words: &[&str]) -> (i32, String) {
    run(cobctl(cluster, &[], words))
}

#[test]
fn a_switch_waits_for_its_windows_and_an_operator_starts_or_drops_it() {
    let mut cluster = cluster(&["n1", "n2"]);
    let first = publish(&mut cluster, [&closed(), &closed()], [1, 1], "");
    // Before the first generation no service runs, and the switch does not wait.
    cluster.bring_up(first, PATIENCE);
    let window = closed();
    let second = publish(&mut cluster, [&window, &window], [2, 2], "");
    let number = second.to_string();
    let (code, said) = ctl(&cluster, &["switch", &number]);
    let waiting = format!(
        "the switch to generation {second} waits for the maintenance window of n1, n2: {window} UTC, opens in "
    );
    assert_eq!(code, 0, "{said}");
    for words in [&*waiting, &format!("`cobctl switch {second} --now`"), &format!("`cobctl cancel {second}`")] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    for command in [&["status"][..], &["explain", "n1"]] {
        let (_, said) = ctl(&cluster, command);
        assert!(said.contains(&waiting), "{command:?}: {said}");
    }
    let wait = waits(&cluster, "n1").expect("it waits");
    assert_eq!((wait.to, wait.opens_in_s.is_some_and(|s| s > DAY)), (second, true), "{wait:?}");
    let (_, json) = ctl(&cluster, &["status", "--json"]);
    assert!(json.contains("\"window_wait\""), "{json}");
    // A wait that can't end in time does not begin; the order stays.
    let (code, said) = ctl(&cluster, &["switch", &number, "--wait", "60s"]);
    assert!(code == 1 && said.contains(&waiting), "{code}: {said}");
    // The hosts keep it.
    cluster.kill("n1");
    cluster.start("n1");
    cluster.wait_answers("n1");
    let again = waits(&cluster, "n1").expect("it waits still");
    assert_eq!((again.to, &again.by, again.since_ns), (second, &wait.by, wait.since_ns));
    cluster.until(
        PATIENCE,
        || waits(&cluster, "n1").is_some_and(|wait| wait.windows == again.windows),
        "windows are known",
    );
    // Dropped, it starts no more.
    let (code, said) = ctl(&cluster, &["cancel"]);
    assert!(code == 0 && said.contains("the order that waited for maintenance windows is dropped"), "{said}");
    assert!(["n1", "n2"].iter().all(|host| waits(&cluster, host).is_none()));
    // The restarted daemon may still check its change objects.
    cluster.until(PATIENCE, || cluster.is_converged(first), "the first generation stays");
    // The program leads stages and does not stay for days: it drops the orders.
    let (code, said) = ctl(&cluster, &["switch", &number, "--canary", "n1", "--wait", "60s"]);
    assert!(code == 1 && said.contains("stages start only within open windows"), "{code}: {said}");
    assert!(["n1", "n2"].iter().all(|host| waits(&cluster, host).is_none()));
    // Another order waits, and the operator starts it.
    let (code, said) = ctl(&cluster, &["switch", &number]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = ctl(&cluster, &["switch", &number, "--now", "--wait", "60s"]);
    assert_eq!(code, 0, "{said}");
    assert!(cluster.is_converged(second));
    assert!(["n1", "n2"].iter().all(|host| waits(&cluster, host).is_none()));
    let ignored = told(&cluster, "n1", "windows-ignored");
    assert_eq!(ignored.len(), 1, "{ignored:?}");
    let many = |event: &str| told(&cluster, "n1", event).len();
    assert_eq!((many("window-wait"), many("window-wait-ended")), (3, 2), "a cancel and a canary have dropped an order");
    // An operator's way back does not wait.
    let (code, said) = ctl(&cluster, &["rollback", "--wait", "60s"]);
    assert_eq!(code, 0, "{said}");
    assert!(cluster.is_converged(first));
}

#[test]
fn windows_of_unchanged_hosts_do_not_delay_a_switch() {
    let mut cluster = cluster(&["n1", "n2"]);
    let first = publish(&mut cluster, ["", ""], [1, 1], "");
    cluster.bring_up(first, PATIENCE);
    let second = publish(&mut cluster, [&closed(), "daily 00:00-24:00"], [1, 2], "");
    let (code, said) = ctl(&cluster, &["switch", &second.to_string(), "--wait", "60s"]);
    assert_eq!(code, 0, "{said}");
    assert!(cluster.is_converged(second));
    // Windows that are never open together never let the switch start, and messages say so.
    let other = format!("{} 00:00-24:00", day(now() + 3 * DAY));
    let third = publish(&mut cluster, [&closed(), &other], [3, 3], "");
    let (code, said) = ctl(&cluster, &["switch", &third.to_string()]);
    assert!(code == 0 && said.contains("they are never open together"), "{code}: {said}");
    let (_, said) = ctl(&cluster, &["plan", &third.to_string()]);
    assert!(said.contains("they are never open together"), "{said}");
    // A later order replaces it.
    let fourth = publish(&mut cluster, ["", ""], [4, 4], "");
    let (code, said) = ctl(&cluster, &["switch", &fourth.to_string(), "--wait", "60s"]);
    assert_eq!(code, 0, "{said}");
    assert!(cluster.is_converged(fourth) && waits(&cluster, "n1").is_none());
}

#[test]
fn a_switch_starts_when_its_window_opens_and_a_schedule_checks_and_switches() {
    let mut cluster = cluster(&["n1", "n2"]);
    let first = publish(&mut cluster, ["", ""], [1, 1], "");
    cluster.bring_up(first, PATIENCE);
    // From the minute after next on, for some hours.
    let opens = now() / 60 * 60 + 120;
    let clock = |second: u64| format!("{:02}:{:02}", second / 3600 % 24, second / 60 % 60);
    let window = format!("{} {}-{}", day(opens), clock(opens), clock(opens + 3 * 3600));
    let each_minute = "schedule: {check: \"* * * * *\", switch: \"* * * * *\"}";
    let second = publish(&mut cluster, [&window, &window], [2, 2], each_minute);
    cluster.switch_all(second);
    assert!(waits(&cluster, "n1").is_some() && waits(&cluster, "n2").is_some());
    // A daemon that dies meanwhile starts with the others.
    cluster.kill("n2");
    cluster.start("n2");
    cluster.until(MINUTES, || cluster.is_converged(second), "the window opens");
    assert!(now() >= opens, "not before");
    // Only the schedule checks the change object.
    let up = cluster.path("n1/cobs/n1+a/up");
    assert!(up.exists());
    fs::remove_file(&up).expect("removed");
    cluster.until(MINUTES, || up.exists(), "the check by schedule finds it");
    // The schedule switches without an order.
    let third = publish(&mut cluster, [&window, &window], [3, 3], each_minute);
    cluster.until(MINUTES, || cluster.is_converged(third), "the schedule switches");
    let json = serde_json::to_string(&cluster.merged_history()).expect("a history");
    assert!(json.contains("schedule * * * * *"), "{json}");
}
