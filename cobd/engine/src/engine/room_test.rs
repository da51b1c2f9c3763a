//! Floods of well-formed messages.

use super::*;
use crate::peers::COUNT;
use crate::testing::Bench;

fn bench() -> Bench {
    Bench::new(&["h/c: 0 1, prefers 0, lock 1 <- d/d@1", "h/e: 0 1, prefers 0"])
}

#[test]
fn ever_new_names_are_left_out_from_some_number_on() {
    let mut b = bench();
    let before = b.engine.names.weight();
    for n in 0..10_000 {
        b.hears(&format!("request d/x of h/c@s{n} #1.{} rank 3 from d/o{n}", n + 1));
    }
    let grown = b.engine.names.weight() - before;
    assert!((NAMES..NAMES + 1000).contains(&grown), "{grown}");
    let left_out = b.engine.left_out();
    assert!(left_out > 9000, "{left_out}");
    // It may use names that it has mentioned before, and other hosts may send new names.
    let said = b.hears("request d/x of h/c@0 #1.20000 rank 3");
    assert!(said.iter().any(|line| line.contains("grant h/c@0 to d/x")), "{said:?}");
    let said = b.hears("request a/new of h/c@0 #1.1 rank 3");
    assert!(said.iter().any(|line| line.contains("grant h/c@0 to a/new")), "{said:?}");
    assert_eq!(b.engine.left_out(), left_out);
    // The next generation may have others.
    b.engine.make_room_for_names();
    let said = b.hears("request d/new of h/c@0 #1.20001 rank 3");
    assert!(said.iter().any(|line| line.contains("grant h/c@0 to d/new")), "{said:?}");
}

#[test]
fn names_in_foreign_or_misdirected_messages_are_not_stored() {
    let mut b = bench();
    let before = b.engine.names.weight();
    let life = b.engine.incarnation();
    let host = b.engine.names.host(&cob_types::HostName::new("d").expect("a name"));
    for text in ["request a/x of h/c@0 #1.7 rank 3", "release d/y of a/z #1.7", "probe of a/a to a/b #1.9 via d/d"] {
        let item = crate::testing::read(text, life);
        assert!(b.engine.take_in(host, item, b.now).is_none(), "{text}");
    }
    assert_eq!(b.engine.names.weight(), before);
}

#[test]
fn ever_new_askers_are_left_out_until_others_have_gone() {
    let mut b = bench();
    let pairs = PAIRS as u64;
    for n in 0..pairs / 2 {
        b.hears(&format!("request d/{n} of h/c@0 #1.{n} rank 3"));
        b.hears(&format!("request d/{n} of h/e@0 #1.{n} rank 3"));
    }
    assert_eq!(b.engine.left_out(), 0);
    assert!(!b.hears("request d/1 of h/c@0 #1.5000 rank 3").is_empty(), "one that has a place");
    assert_eq!((b.hears("request d/new of h/c@0 #1.5001 rank 3"), b.engine.left_out()), (Vec::new(), 1));
    assert!(!b.hears("request a/new of h/c@0 #1.1 rank 3").is_empty(), "one of another host");
    // A new incarnation of the host without them makes room, though not at once.
    let fence = crate::event::Order::Fence(cob_types::HostName::new("d").expect("a name"));
    b.event(crate::event::Event::Order(fence));
    b.after(COUNT);
    b.replaced("d", 100);
    b.meet("d");
    assert!(!b.hears("request d/new of h/c@0 #1.5001 rank 3").is_empty(), "there is room again");
}
