//! Free ports for programs that are started with a port in their configuration.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, Ordering};

/// The lowest port that is given: well-known programs use lower ports.
const LOWEST: u32 = 10_000;
const HIGHEST: u32 = 65_535;
/// The ports between the first ports of two processes with adjacent numbers.
const STRIDE: u32 = 61;

/// The next port of this process. Two threads never get the same port.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Different TCP ports of 127.0.0.1 without a listener, outside the range from which the kernel takes the ports of
/// outgoing connections (`ip_local_port_range`, ip(7)): no connection takes a port before the program listens on it. If
/// that range leaves no port, a port in it is given.
///
/// # Errors
/// When no port is free.
pub fn free_ports<const N: usize>() -> io::Result<[u16; N]> {
    let taken = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ports = candidates(range(&taken), std::process::id());
    let mut found = [0; N];
    for place in &mut found {
        let free = ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
        *place = free.ok_or_else(|| io::Error::new(io::ErrorKind::AddrInUse, "no port of 127.0.0.1 is free"))?;
    }
    Ok(found)
}

/// The range in a file of the kernel.
fn range(text: &str) -> RangeInclusive<u32> {
    let mut bounds = text.split_whitespace().filter_map(|word| word.parse().ok());
    match (bounds.next(), bounds.next()) {
        (Some(first), Some(last)) => first..=last,
        _ => 32_768..=60_999,
    }
}

/// Ports of a process in the order of use: each allowed port at most once.
fn candidates(taken: RangeInclusive<u32>, process: u32) -> impl Iterator<Item = u16> {
    let outside: Vec<u16> =
        (LOWEST..=HIGHEST).filter(|port| !taken.contains(port)).filter_map(|p| p.try_into().ok()).collect();
    let all = || (LOWEST..=HIGHEST).filter_map(|port| port.try_into().ok()).collect();
    let allowed = if outside.is_empty() { all() } else { outside };
    let first = process.wrapping_mul(STRIDE);
    (0..allowed.len()).filter_map(move |_| {
        let place = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) as usize % allowed.len();
        allowed.get(place).copied()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_lie_outside_the_range_of_connections() {
        let first = free_ports::<4>().expect("free");
        let second = free_ports::<4>().expect("free");
        let all: std::collections::BTreeSet<u16> = first.into_iter().chain(second).collect();
        assert_eq!(all.len(), 8);
        let held = TcpListener::bind(("127.0.0.1", first[0])).expect("bound");
        assert!(free_ports::<4>().expect("free").iter().all(|port| *port != first[0]));
        drop(held);
        assert!(candidates(range("20000\t65535\n"), 7).all(|port| (10_000..20_000).contains(&port)));
        assert_eq!(candidates(range("1024\t65535\n"), 7).count(), 55_536);
        assert_eq!(range("nonsense"), 32_768..=60_999);
    }
}
