//! Restores the original files, links and enablement of a unit.

use std::path::Path;

use tokio::time::Instant;

use super::before::{Before, Started};
use super::bus::Bus;
use super::files::put_back;
use super::links::Links;
use super::own::is_own;

/// Adds to an error the unit of the earlier content.
pub(super) fn of_former(before: &Before) -> impl FnOnce(String) -> String + use<> {
    let unit = before.unit.clone();
    move |why| format!("restoring {unit}, which an earlier content managed: {why}")
}

/// Stops a unit that the change object no longer manages, and restores its files. It is restarted only at the
/// departure: until then another unit runs in its place.
pub(super) async fn put_other_back(bus: &Bus, folder: &Path, mut before: Before, limit: Instant) -> Result<(), String> {
    let state = bus.look(&before.unit).await?;
    if (state.runs() || state.moves()) && !is_own(&state.id) {
        bus.job("StopUnit", &before.unit, limit).await.map_err(|why| format!("stop: {why}"))?;
    }
    Started::remove(folder);
    bus.reset_failed(&before.unit).await;
    put_all_back(bus, folder, &mut before).await?;
    if before.that_ran().is_empty() { Before::remove(folder) } else { Ok(()) }
}

/// Restores files, masks and enablement. Idempotent.
pub(super) async fn put_all_back(bus: &Bus, folder: &Path, before: &mut Before) -> Result<(), String> {
    if before.restored {
        return Ok(());
    }
    before.settle_links(folder)?;
    if before.links.is_none() {
        take_enablement_back(bus, before).await?;
    }
    for (name, found) in &before.files {
        put_back(&before.systemd.units.join(name), found).map_err(|e| format!("{name}: {e}"))?;
    }
    if !before.had_folder {
        // A folder with other entries stays.
        let _ = std::fs::remove_dir(before.systemd.units.join(format!("{}.d", before.unit)));
    }
    bus.reload().await?;
    let there = bus.look(&before.unit).await?.is_there();
    let changed = match &before.links {
        Some(links) => links.put_back(there)?,
        None => there && give_enablement_back(bus, before).await?,
    };
    if changed {
        bus.reload().await?;
    }
    before.restored = true;
    before.files.clear();
    before.links = Some(Links::default());
    before.write(folder)
}

/// Disables a unit that was not enabled before, only by systemd's word for its enablement.
async fn take_enablement_back(bus: &Bus, before: &Before) -> Result<(), String> {
    // While the file with its section [Install] exists.
    if before.was_enabled() || !bus.look(&before.unit).await?.file_state.starts_with("enabled") {
        return Ok(());
    }
    for runtime in [false, true] {
        bus.disable(&before.unit, runtime).await?;
    }
    Ok(())
}

/// Enables a unit that was enabled before, only by systemd's word. Returns whether this was a change.
async fn give_enablement_back(bus: &Bus, before: &Before) -> Result<bool, String> {
    if !before.was_enabled() || bus.look(&before.unit).await?.file_state.starts_with("enabled") {
        return Ok(false);
    }
    let (installs, _) = bus.enable(&before.unit, before.file_state == "enabled-runtime").await?;
    if installs { Ok(true) } else { Err(no_section(&before.unit)) }
}

pub(super) fn no_section(unit: &str) -> String {
    format!("{unit} can't be enabled: it has no section [Install]; leave out `enabled`")
}
