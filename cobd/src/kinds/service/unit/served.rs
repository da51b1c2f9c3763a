//! Stops that a move makes besides that of its own unit: of services of sockets, and of what would run on without its file.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::before::Before;
use super::bus::{Bus, UnitState};
use super::files::Found;
use super::own::is_own;

/// Stops the services of a socket before the socket starts: systemd starts no socket while its service runs. Returns the
/// services that ran, to be started again behind the socket. Units that change objects want up are left alone.
pub(super) async fn stop_served(
    bus: &Bus,
    socket: &UnitState,
    wanted: &BTreeSet<String>,
    limit: Instant,
) -> Result<Vec<String>, String> {
    let mut ran = Vec::new();
    if !socket.id.ends_with(".socket") {
        return Ok(ran);
    }
    for unit in socket.triggers.iter().filter(|unit| !wanted.contains(*unit)) {
        let served = bus.look(unit).await?;
        if (served.runs() || served.moves()) && !is_own(&served.id) {
            let stopped = bus.job("StopUnit", unit, limit).await;
            stopped.map_err(|why| format!("stopping {unit}, which {} is to start: {why}", socket.id))?;
            ran.push(unit.clone());
        }
    }
    Ok(ran)
}

/// Starts services again that were stopped for their socket, whatever has become of that.
pub(super) async fn start_again(bus: &Bus, ran: &[String], limit: Instant) -> Result<(), String> {
    for unit in ran {
        let started = bus.job("StartUnit", unit, limit).await;
        started.map_err(|why| format!("starting {unit} again, which ran before: {why}"))?;
    }
    Ok(())
}

/// Stops a service that is active with a file from here, and was down as far as the model is concerned: a socket has started
/// it, or somebody else. Without its file nobody would know any more how it is stopped. What only works for a time is let come
/// to its end.
pub(super) async fn stop_what_goes(bus: &Bus, before: &Before) -> Result<(), String> {
    let was_absent = matches!(before.files.get(&before.unit), Some(Found::Absent));
    if before.restored || !was_absent {
        return Ok(());
    }
    let state = bus.look(&before.unit).await?;
    if state.active != "active" || state.fragment != before.systemd.units.join(&before.unit) || is_own(&state.id) {
        return Ok(());
    }
    let stopped = bus.job("StopUnit", &before.unit, Instant::now() + Duration::from_secs(60)).await;
    stopped.map_err(|why| format!("stopping {}, whose file goes: {why}", before.unit))
}
