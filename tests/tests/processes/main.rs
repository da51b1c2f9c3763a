//! Real daemons, real ZeroMQ between them, real actions, real signals.
//!
//! These tests cover what only processes can show: kills at any point lose and repeat no work, a hostile peer at the
//! port has no effect, a full disk does no harm. The simulation, which runs the same engine, tests the protocol far
//! more thoroughly.

mod actions;
mod adhoc;
mod api;
mod before;
mod bootstrap;
mod budgets;
mod checks;
mod closed;
mod creation;
mod disk;
mod durations;
mod enrol;
mod examples;
mod false_server;
mod file_tree;
mod flap;
mod follows;
mod hostile;
mod kills;
mod kinds;
mod left_behind;
mod liars;
mod moved;
mod notices;
mod observed;
mod orders;
mod page;
mod reach;
mod recorded;
mod restored;
mod reverts;
mod rollback;
mod rollouts;
mod secrets;
mod service;
mod setup;
mod siege;
mod signed;
mod stale;
mod steps;
mod stops;
mod switches;
mod windows;
mod withdrawals;
mod words;

use std::time::Duration;

use cob_tests::cluster::Cluster;

/// The longest wait of a test.
const PATIENCE: Duration = Duration::from_secs(180);

/// Daemons of these hosts, not started yet.
fn cluster(hosts: &[&str]) -> Cluster {
    Cluster::new(env!("CARGO_BIN_EXE_cob"), hosts)
}

/// A kind with two states that changes a word in a file; used with [`CHECK`].
const QUICK: (&str, &str) = (
    "quick.yaml",
    r#"
kinds:
  quick:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {run: ./check.sh}
    transitions:
      - {from: down, to: up, run: "echo up > $COB_STATE_DIR/state"}
      - {from: up, to: down, run: "rm $COB_STATE_DIR/state"}
"#,
);

/// A kind whose content matters: up with another content, it is outdated. With `bad` in it, it does not come up.
const VERSIONED: (&str, &str) = (
    "versioned.yaml",
    r#"
kinds:
  versioned:
    states: [down, up, outdated]
    preferred: up
    pre_remove: down
    retries: 0
    check: {run: 'if [ ! -e "$COB_STATE_DIR/up" ]; then echo down; elif cmp -s "$COB_STATE_DIR/up" "$COB_CONTENT"; then echo up; else echo outdated; fi'}
    transitions:
      - {from: down, to: up, failure: down, run: '! grep -q bad "$COB_CONTENT" && cp "$COB_CONTENT" "$COB_STATE_DIR/up"'}
      - {from: up, to: down, run: 'rm "$COB_STATE_DIR/up"'}
      - {from: outdated, to: down, run: 'rm "$COB_STATE_DIR/up"'}
"#,
);

/// A check for the scripts of these tests: the file `state` contains the state; without the file it is down.
const CHECK: (&str, &str) = ("check.sh", "#!/bin/sh\ncat \"$COB_STATE_DIR/state\" 2>/dev/null || echo down\n");
