//! Stops of other units during a transition: services of sockets, and services that would run on without their unit
//! file.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::before::Before;
use super::bus::{Bus, UnitState};
use super::files::Found;
use super::own::is_own;

/// Stops the services of a socket before its start, because systemd starts no socket while its service runs. Returns
/// the stopped services, for a later restart. `wanted` units are left alone.
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

/// Restarts services that were stopped for their socket, even if the socket failed.
pub(super) async fn start_again(bus: &Bus, ran: &[String], limit: Instant) -> Result<(), String> {
    for unit in ran {
        let started = bus.job("StartUnit", unit, limit).await;
        started.map_err(|why| format!("starting {unit} again, which ran before: {why}"))?;
    }
    Ok(())
}

/// Stops an active service whose unit file comes from here and is about to be removed: a socket or a user started it.
/// Without its file, systemd would not know how to stop it. A oneshot service that still works may end by itself.
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
