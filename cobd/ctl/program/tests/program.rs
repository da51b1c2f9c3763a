//! The program as a process: its exit status, its outputs, the files for packages.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn cobctl(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cobctl"))
        .args(args)
        .env_remove("COB_DEPOT")
        .env_remove("COB_SOCKET")
        .env_remove("COB_KEY")
        .env("COB_CONFIG", "/dev/null")
        .stdin(Stdio::null())
        .output()
        .expect("runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn help_shows_examples_and_goes_to_the_standard_output() {
    for command in ["status", "watch", "explain", "history", "switch", "fence", "trust", "completions"] {
        let shown = cobctl(&[command, "--help"]);
        assert_eq!((shown.status.code(), text(&shown.stderr).as_str()), (Some(0), ""), "{command}");
        assert!(text(&shown.stdout).contains("Usage: "), "{command}");
    }
    let shown = text(&cobctl(&["--help"]).stdout);
    assert!(shown.contains("Examples:") && shown.contains("Exit status:"), "{shown}");
}

#[test]
fn bad_usage_exits_with_2_and_an_absent_daemon_with_3() {
    for bad in [&["stat"][..], &["switch"], &["explain", "n1/"], &["--host", "http://x", "status"]] {
        let ran = cobctl(bad);
        assert_eq!((ran.status.code(), text(&ran.stdout).as_str()), (Some(2), ""), "{bad:?}");
        assert!(text(&ran.stderr).contains("error:"), "{bad:?}");
    }
    let ran = cobctl(&["--socket", "/nonexistent/cobd.sock", "retry", "n1/db"]);
    let error = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(3), "{error}");
    for part in
        ["error: no connection to unix:/nonexistent/cobd.sock", "caused by: No such file", "hint: does cobd run"]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn the_command_line_has_precedence_over_the_environment() {
    let with = |variables: &[(&str, &str)], args: &[&str]| {
        let mut line = Command::new(env!("CARGO_BIN_EXE_cobctl"));
        line.args(args).env("COB_CONFIG", "/dev/null").stdin(Stdio::null());
        for name in ["COB_DEPOT", "COB_SOCKET", "COB_KEY"] {
            line.env_remove(name);
        }
        let ran = line.envs(variables.iter().copied()).output().expect("runs");
        (ran.status.code(), text(&ran.stdout) + &text(&ran.stderr))
    };
    let (code, said) = with(&[("COB_DEPOT", "/nonexistent/depot")], &["retry", "n1/db", "--socket", "/nonexistent/a"]);
    assert!(code == Some(3) && said.contains("no connection to unix:/nonexistent/a"), "{said}");
    let both = ["status", "--socket", "/nonexistent/a", "--depot", "/nonexistent/depot"];
    let (code, said) = with(&[], &both);
    assert!(code == Some(2) && said.contains("--socket names a single daemon") && said.contains("hint: "), "{said}");
    let (code, said) = with(&[("COB_SOCKET", "/nonexistent/b"), ("COB_DEPOT", "/nonexistent/depot")], &["status"]);
    assert!(code == Some(2) && said.contains("/nonexistent/depot"), "of two variables the depot: {said}");
    let empty = [("COB_KEY", ""), ("COB_DEPOT", ""), ("COB_SOCKET", "")];
    let (code, said) = with(&empty, &["retry", "n1/db"]);
    assert!(code == Some(3) && said.contains("no connection to unix:/run/cob/cobd.sock"), "{said}");
}

#[test]
fn a_fence_without_confirmation_is_refused() {
    let ran = cobctl(&["--host", "tcp://127.0.0.1:1", "fence", "n2"]);
    let error = text(&ran.stderr);
    assert!(ran.status.code() == Some(2) && error.contains("n2 is not fenced") && error.contains("--yes"), "{error}");
}

#[test]
fn a_closed_output_is_no_failure_of_completions() {
    let mut ran = Command::new(env!("CARGO_BIN_EXE_cobctl"))
        .args(["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    drop(ran.stdout.take());
    let ended = ran.wait_with_output().expect("ends");
    assert_eq!((ended.status.code(), text(&ended.stderr).as_str()), (Some(0), ""));
}

#[test]
fn a_following_command_ends_when_its_reader_closes_the_pipe() {
    for follow in [&["watch"][..], &["history", "--follow"]] {
        let mut ran = Command::new(env!("CARGO_BIN_EXE_cobctl"))
            .args(["--host", "tcp://127.0.0.1:1"])
            .args(follow)
            .env("COB_CONFIG", "/dev/null")
            .env_remove("COB_DEPOT")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("runs");
        std::thread::sleep(std::time::Duration::from_millis(700));
        assert!(ran.try_wait().expect("asked").is_none(), "{follow:?} goes on while somebody reads");
        drop(ran.stdout.take());
        let ended = (0..100).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            ran.try_wait().expect("asked")
        });
        let _ = ran.kill();
        let _ = ran.wait();
        assert_eq!(ended.and_then(|status| status.code()), Some(141), "{follow:?}");
    }
}

#[test]
fn a_closed_output_does_not_change_the_exit_code() {
    for words in [&["status"][..], &["--json", "status"], &["check"], &["facts"]] {
        let mut ran = Command::new(env!("CARGO_BIN_EXE_cobctl"))
            .args(["--host", "tcp://127.0.0.1:1"])
            .args(words)
            .env("COB_CONFIG", "/dev/null")
            .env_remove("COB_DEPOT")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs");
        drop((ran.stdout.take(), ran.stderr.take()));
        assert_eq!(ran.wait().expect("ends").code(), Some(3), "{words:?}: nobody was reached");
    }
}

#[test]
fn the_demo_shows_no_options_that_it_ignores() {
    let shown = text(&cobctl(&["demo", "--help"]).stdout);
    for option in ["--depot", "--host", "--socket", "--key", "--trust", "--timeout", "--config", "--json"] {
        assert!(!shown.contains(option), "{option}: {shown}");
    }
    assert!(shown.contains("--keep") && shown.contains("--color"), "{shown}");
}

/// An interrupt at any stage of the demos, also with a folder to keep.
#[test]
fn an_interrupted_demo_leaves_no_processes_or_files() {
    let cases = [
        ("Three daemons", &["--keep", "kept"][..]),
        ("The switch", &[]),
        ("A hub", &["--hub"]),
        ("shop-1: create", &["--hub"]),
        ("switch the hosts", &["--hub"]),
        ("are killed", &["--hub"]),
    ];
    for (said, options) in cases {
        let temp = tempfile::tempdir().expect("a folder");
        let mut demo = demo(temp.path(), options);
        let out = demo.stdout.take().expect("piped");
        let mut lines = BufReader::new(out).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains(said)), "{said}");
        let pid = rustix::process::Pid::from_child(&demo);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        // Its further output needs a reader.
        lines.for_each(drop);
        let ended = demo.wait_with_output().expect("it ends");
        assert_eq!(ended.status.code(), Some(130), "{said}: {}", text(&ended.stderr));
        assert!(text(&ended.stderr).contains("interrupted"), "{}", text(&ended.stderr));
        assert_no_trace(temp.path());
    }
}

/// The demo of the hub from its begin to its end, with an executable that is alone in its folder.
#[test]
fn the_demo_of_the_hub_needs_no_other_program_and_leaves_no_trace() {
    let temp = tempfile::tempdir().expect("a folder");
    let mut demo = demo(temp.path(), &["--hub"]);
    let out = demo.stdout.take().expect("piped");
    let lines: Vec<String> = BufReader::new(out).lines().map_while(Result::ok).collect();
    let ended = demo.wait_with_output().expect("it ends");
    let out = lines.join("\n");
    assert_eq!(ended.status.code(), Some(0), "{out}\n{}", text(&ended.stderr));
    for part in [
        "5 machines to create",
        "  five machines run the shop",
        "resize to 6 nodes of shop",
        "  the shop is whole again",
        "  services and machines are gone",
        "That was the hub, in ",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert_eq!(lines.iter().filter(|line| line.contains("price = 10")).count(), 3, "{out}");
    assert!(text(&ended.stderr).contains("(did you mean `db`?)"), "{}", text(&ended.stderr));
    assert_no_trace(temp.path());
}

/// A demo whose temporary folder is this one.
fn demo(folder: &Path, options: &[&str]) -> Child {
    let mut line = Command::new(env!("CARGO_BIN_EXE_cobctl"));
    line.arg("demo").args(options).env("TMPDIR", folder).env("COB_CONFIG", "/dev/null").current_dir(folder);
    line.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("begun")
}

fn assert_no_trace(folder: &Path) {
    let left: Vec<_> = std::fs::read_dir(folder).expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");
    let named = folder.to_str().expect("text");
    let alive = std::fs::read_dir("/proc").expect("there").filter_map(Result::ok).filter(|entry| {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let within = std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        within || text(&words).contains(named)
    });
    assert_eq!(alive.count(), 0, "processes of {named}");
}

#[test]
fn completions_and_manual_pages_are_generated() {
    for shell in ["bash", "zsh", "fish"] {
        let made = text(&cobctl(&["completions", shell]).stdout);
        assert!(made.contains("cobctl") && made.contains("explain"), "{shell}");
        for (program, word) in [("cobgen", "generate"), ("cobd", "check-config")] {
            let made = text(&cobctl(&["completions", shell, program]).stdout);
            assert!(made.contains(program) && made.contains(word), "{shell}, {program}");
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("man1");
    assert_eq!(cobctl(&["man", pages.to_str().expect("text")]).status.code(), Some(0));
    for page in ["cobctl.1", "cobctl-switch.1", "cobctl-explain.1", "cobgen-generate.1", "cobd-run.1"] {
        assert!(std::fs::read_to_string(pages.join(page)).expect(page).contains(".TH"), "{page}");
    }
}

#[test]
fn colour_is_used_only_on_request() {
    let plain = cobctl(&["--socket", "/nonexistent", "status"]);
    assert!(!text(&plain.stdout).contains('\u{1b}') && plain.status.code() == Some(3));
    let always = cobctl(&["--socket", "/nonexistent", "--color", "always", "status"]);
    assert!(text(&always.stdout).contains("\u{1b}[31m?\u{1b}[0m nonexistent"), "{}", text(&always.stdout));
}
