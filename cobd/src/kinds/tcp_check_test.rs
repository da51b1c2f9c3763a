//! `tcp-check` against ports that listen, listen late, or never listen.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::kinds::Outcome;
use crate::kinds::testing::{Bench, plain_kind, reason};

/// An address without a listener.
fn unused() -> SocketAddr {
    let [port] = cob_processes::free_ports().expect("free");
    ([127, 0, 0, 1], port).into()
}

#[tokio::test]
async fn a_tcp_check_is_up_when_a_program_listens() {
    let mut bench = Bench::new();
    let address = unused();
    let content = format!(r#"{{"address":"{address}","interval":"5ms"}}"#);
    let context = bench.context(&plain_kind("tcp-check"), &content);
    let outcome = bench.check(&context).await;
    assert_eq!(outcome.state.expect("known"), *"down");
    assert!(outcome.difference.contains("refused"), "{}", outcome.difference);

    let (job, _handle) = bench.begin(&context, "down", "up");
    let waits_for = |bench: &Bench| bench.kinds.said(job, &context.cob.id);
    while waits_for(&bench).is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let said = waits_for(&bench);
    assert!(said.contains(&address.to_string()) && said.contains("refused"), "{said}");
    let listener = TcpListener::bind(address).await.expect("bound again");
    assert_eq!(bench.ended().await.end, crate::kinds::JobEnd::Moved(Outcome::done()));
    assert_eq!(bench.kinds.said(job, &context.cob.id), "", "nothing is said of a wait that has ended");
    assert_eq!(bench.state(&context).await, "up");
    // Off stays off although the port listens; then on again.
    assert_eq!(bench.transition(&context, "up", "down").await, Outcome::done());
    assert_eq!(bench.state(&context).await, "down");
    assert_eq!(bench.transition(&context, "down", "up").await, Outcome::done());
    drop(listener);
    assert_eq!(bench.state(&context).await, "down");
}

#[tokio::test]
async fn a_tcp_check_fails_after_its_timeout_with_the_last_reason() {
    let mut bench = Bench::new();
    let address = unused();
    let mut kind = plain_kind("tcp-check");
    kind.transitions.iter_mut().for_each(|t| t.timeout_ms = 50);
    let context = bench.context(&kind, &format!(r#"{{"address":"{address}","interval":0}}"#));
    let why = reason(bench.transition(&context, "down", "up").await);
    assert!(why.contains("50ms") && why.contains("refused"), "{why}");
}
