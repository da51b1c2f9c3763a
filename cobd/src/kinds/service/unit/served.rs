//! Stops of other units during a transition: services of sockets, services that would run on without their unit file, and
//! sockets outside of the model that would start a stopped service again.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::before::Before;
use super::bus::{Bus, UnitState};
use super::files::Found;
use super::own::is_own;

/// Units that start another unit at once when it is stopped, if there is work.
const AT_ONCE: [&str; 2] = [".socket", ".path"];

/// The active units outside of the model that start a stopped unit again at once. `of_model`: the triggers of the model.
pub(super) async fn outside_triggers(
    bus: &Bus,
    unit: &UnitState,
    of_model: &BTreeSet<String>,
) -> Result<Vec<String>, String> {
    let mut active = Vec::new();
    for name in unit.triggered_by.iter().filter(|name| !of_model.contains(*name)) {
        if AT_ONCE.iter().any(|ending| name.ends_with(ending)) && bus.look(name).await?.runs() {
            active.push(name.clone());
        }
    }
    Ok(active)
}

/// Starts the noted triggers of a unit that does not run: systemd starts no socket while its service runs.
pub(super) async fn start_triggers(
    bus: &Bus,
    unit: &UnitState,
    noted: &BTreeSet<String>,
    limit: Instant,
) -> Result<(), String> {
    for name in unit.triggered_by.iter().filter(|name| noted.contains(*name)) {
        if !bus.look(name).await?.runs() {
            let started = bus.job("StartUnit", name, limit).await;
            started.map_err(|why| format!("starting {name} again, which ran before: {why}"))?;
        }
    }
    Ok(())
}

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
