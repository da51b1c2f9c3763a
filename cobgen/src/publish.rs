//! Publishes a model as the depot's next generation.
//!
//! The generation follows the depot's latest generation. It is checked, and published as a whole or not at all. If
//! another publisher was faster, it is made again, and follows the other publisher's generation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use cob_depot::enrolled::Enrolments;
use cob_depot::{Depot, DepotError, Publication, PublishError};
use cob_trust::{SecretKey, publishers};
use cob_types::generation::Security;
use cob_types::maintenance::{SharedWindows, in_words};
use cob_types::trust::{PublicKey, Signed};
use cob_types::words::list;
use cob_types::{Generation, GenerationNumber, HostName, Manifest, codec};

use crate::calendar::{now, signed};
use crate::diagnostic::{Diagnostic, Severity, render, summary};
use crate::known::{Asking, KnownByHosts};
use crate::make::{After, Made, NotInstead, make_with};
use crate::model::Sources;
use crate::secrets::Vault;
use crate::solve;
use crate::switches::give_orders;
use cob_forecast::{Difference, diff};

/// The limit of groups of hosts in a warning.
const NAMED: usize = 4;

/// How often a generation is made again because another publisher was faster.
const MAX_OVERTAKEN: usize = 16;

/// The result of publishing.
#[derive(Debug)]
pub struct Published {
    /// The generation that matches the model.
    pub generation: GenerationNumber,
    /// Whether this call made it; else the depot's latest generation already matches the model.
    pub new: bool,
    /// The number of its hosts.
    pub hosts: usize,
    /// The number of its change objects.
    pub cobs: u64,
    /// The difference from the generation before it; empty if no new generation was made.
    pub difference: Difference,
    /// Warnings.
    pub diagnostics: Vec<Diagnostic>,
    /// The model's files, to show the lines of the warnings.
    pub sources: Sources,
    /// The protection of its links.
    pub security: Security,
    /// The keys that signed it.
    pub signers: Vec<PublicKey>,
    /// Keys that the generation before did not name for their hosts: a signature lets these hosts in.
    pub new_keys: Vec<(HostName, PublicKey)>,
    /// The newest generation of the depot before this publication.
    pub before: GenerationNumber,
    /// Hosts that knew a newer generation than the depot had.
    pub ahead: BTreeMap<HostName, GenerationNumber>,
    /// Hosts that know another content under the number `before`.
    pub with_another: BTreeSet<HostName>,
    /// Keys that are revoked since this generation, each with its host.
    pub revoked_keys: Vec<(PublicKey, Option<HostName>)>,
}

/// The options of publishing.
#[derive(Debug, Clone, Copy)]
pub struct PublishOptions<'a> {
    /// The log message; may be empty.
    pub message: &'a str,
    /// The key that signs it.
    pub signer: Option<&'a SecretKey>,
    /// Whether hosts may roll back from it, and from later generations, to earlier generations.
    pub way_back: bool,
    /// The vault with the values of its secrets.
    pub vault: &'a Vault,
    /// Failed generations, whose layouts are excluded.
    pub instead_of: &'a [GenerationNumber],
    /// The new generation gets a number above this number.
    pub above: GenerationNumber,
    /// How to ask hosts for their known generations; `None`: no host is asked.
    pub asking: Option<Asking<'a>>,
}

impl<'a> PublishOptions<'a> {
    /// Without a signature, with rollback targets, and without asking hosts.
    #[must_use]
    pub fn plain(vault: &'a Vault) -> Self {
        let (above, asking) = (GenerationNumber(0), None);
        Self { message: "", signer: None, way_back: true, vault, instead_of: &[], above, asking }
    }
}

/// The reason why no generation was published.
#[derive(Debug)]
pub enum Refused {
    /// The model is wrong.
    Model {
        /// All faults and warnings.
        diagnostics: Vec<Diagnostic>,
        /// Its files, to show lines.
        sources: Sources,
    },
    /// The depot can't be read or written.
    Depot(PublishError),
}

/// Publishes a model as the depot's next generation; creates a missing depot.
///
/// # Errors
/// [`Refused`]; the depot is unchanged then.
pub fn publish(model: &Path, depot: &Path, message: &str) -> Result<Published, Refused> {
    publish_with(model, depot, &PublishOptions { message, ..PublishOptions::plain(&Vault::new(None, None)) })
}

/// Like [`publish`], with options.
///
/// # Errors
/// As there.
pub fn publish_with(model: &Path, depot: &Path, options: &PublishOptions<'_>) -> Result<Published, Refused> {
    let mut overtaken = 0;
    loop {
        match attempt(model, depot, options) {
            Err(Refused::Depot(PublishError::Overtaken { .. })) if overtaken < MAX_OVERTAKEN => overtaken += 1,
            outcome => return outcome,
        }
    }
}

/// The depot's latest generation, or [`Generation::nothing`].
///
/// # Errors
/// When it can't be read.
pub fn latest(depot: &Depot) -> Result<Generation, DepotError> {
    depot.latest()?.map_or_else(|| Ok(Generation::nothing()), |number| depot.read(number))
}

fn attempt(model: &Path, path: &Path, options: &PublishOptions<'_>) -> Result<Published, Refused> {
    // The depot is created after the model was checked, so that a wrong model leaves no empty depot behind.
    let found = Depot::open(path).and_then(|depot| {
        let before = latest(&depot)?;
        Ok((After::latest(&depot, &before)?, before, Some(depot)))
    });
    let (mut after, before, earlier) = match found {
        Ok(found) => found,
        // A depot that does not exist yet has no enrolled hosts.
        Err(DepotError::Missing { .. }) => new_depot(),
        Err(_) if is_empty_folder(path) => new_depot(),
        Err(error) => return Err(Refused::depot(error)),
    };
    if !options.way_back {
        after.back.clear();
        after.mends = true;
    }
    let not_instead = match &earlier {
        Some(depot) => after.instead_of(depot, options.instead_of).err(),
        None => options.instead_of.first().map(|number| NotInstead::NoLayout(*number)),
    };
    match not_instead {
        None => {}
        Some(NotInstead::Depot(error)) => return Err(Refused::depot(error)),
        Some(error @ NotInstead::NoLayout(_)) => {
            let diagnostics = vec![Diagnostic::error("no-layout-to-exclude", error.to_string())];
            return Err(Refused::Model { diagnostics, sources: Sources::default() });
        }
    }
    let mut known = KnownByHosts::default();
    let mut learn = |manifest: &Manifest, after: &mut After| {
        if let Some(asking) = options.asking {
            known.ask(manifest, asking);
        }
        let mut above = known.newest().max(options.above);
        // A generation that must be published again, although the depot has it, skips a number.
        let is_another = after.id.is_some_and(|own| !known.with_another(own).is_empty());
        if is_another || options.above >= after.number.max(GenerationNumber(1)) {
            above = above.max(GenerationNumber(after.number.0.saturating_add(1)));
        }
        let is_too_low = above > after.above.max(after.number);
        after.above = after.above.max(above);
        is_too_low
    };
    learn(&before.manifest, &mut after);
    let mut made = make_with(model, &after, Some(options.vault));
    if let Some(assembled) = &made.assembled
        && learn(&assembled.generation.manifest, &mut after)
    {
        // A host that is new in the model, or in a new depot, knows a higher number.
        made = make_with(model, &after, Some(options.vault));
    }
    let mut refused = made.is_refused();
    let Made { mut assembled, mut diagnostics, sources, beside, layouts } = made;
    if let (Some(assembled), false) = (&mut assembled, refused) {
        let said = give_orders(&mut assembled.generation, &before, earlier.as_ref()).map_err(Refused::depot)?;
        refused = said.iter().any(|d| d.severity == Severity::Error);
        diagnostics.extend(said);
    }
    let (Some(assembled), false) = (assembled, refused) else { return Err(Refused::Model { diagnostics, sources }) };
    let mut files = beside;
    let root = if model.is_dir() { model } else { model.parent().unwrap_or(model) };
    for (file, text) in sources.files() {
        let name = file.strip_prefix(root).unwrap_or(file).to_string_lossy().into_owned();
        files.insert(name, text.as_bytes().to_vec());
    }
    diagnostics.extend(never_open(&before.manifest, &assembled.generation.manifest));
    if !layouts.is_empty() {
        files.insert(solve::REMEMBERED.to_owned(), solve::to_bytes(&layouts));
    }
    let provenance = assembled.provenance.to_json().expect("places and names can always be written as JSON");
    let generation = &assembled.generation;
    let depot = Depot::create_or_open(path).map_err(Refused::depot)?;
    let bytes = codec::encode(&generation.manifest).expect("it was encoded when it was assembled");
    let signatures: Vec<Signed> = options.signer.map(|key| publishers::sign(key, &bytes)).into_iter().collect();
    let publication = Publication {
        generation,
        model: &files,
        provenance: &provenance,
        message: options.message,
        author: &depot.default_author(),
        time: signed(now()),
        signatures: &signatures,
    };
    let (number, new) = match depot.publish(&publication).map_err(Refused::Depot)? {
        cob_depot::Published::New(number) => (number, true),
        cob_depot::Published::Unchanged(number) => (number, false),
    };
    let signers = depot.signatures(number).map_err(Refused::depot)?.into_iter().map(|signed| signed.key).collect();
    let mut difference = if new { diff(&before, generation) } else { diff(generation, generation) };
    if !new {
        (difference.from, difference.to) = (number, number);
    }
    let published = Published {
        generation: number,
        new,
        hosts: generation.bundles.len(),
        cobs: generation.manifest.cobs,
        difference,
        diagnostics,
        sources,
        security: generation.manifest.security,
        signers,
        before: before.manifest.generation,
        ahead: known.ahead_of(before.manifest.generation),
        with_another: after.id.map(|own| known.with_another(own)).unwrap_or_default(),
        new_keys: if new { new_keys(&before.manifest, &generation.manifest) } else { Vec::new() },
        revoked_keys: if new { revoked_keys(&before.manifest, &generation.manifest) } else { Vec::new() },
    };
    // Dropping millions of small parts takes long, so another thread does it.
    rayon::spawn(move || drop((before, assembled)));
    Ok(published)
}

/// Warns of maintenance windows that are never open together, of hosts that the switch from the generation before changes.
fn never_open(before: &Manifest, after: &Manifest) -> Option<Diagnostic> {
    let from = Some(before).filter(|before| before.generation != GenerationNumber(0));
    let shared = SharedWindows::of_switch(from, after, |_| true);
    if !shared.openings().is_never() {
        return None;
    }
    let groups = shared.0.iter().map(|group| format!("{} ({})", group.hosts_in_words(), in_words(&group.windows)));
    let what = format!("the maintenance windows of hosts that change are never open together: {}", list(groups, NAMED));
    let help = "a switch to this generation waits for ever: give these hosts a window that they share, or start it with `cobctl \
                switch N --now`";
    Some(Diagnostic::warning("windows-never-open", what).help(help))
}

fn new_keys(before: &Manifest, after: &Manifest) -> Vec<(HostName, PublicKey)> {
    let all = after.hosts.iter().flat_map(|(host, entry)| entry.keys.iter().map(move |key| (host, key)));
    let known = |host: &HostName, key: &PublicKey| before.hosts.get(host).is_some_and(|h| h.keys.contains(key));
    all.filter(|(host, key)| !known(host, key)).map(|(host, key)| (host.clone(), *key)).collect()
}

fn revoked_keys(before: &Manifest, after: &Manifest) -> Vec<(PublicKey, Option<HostName>)> {
    let had = |key: &PublicKey| before.hosts.iter().find(|(_, entry)| entry.keys.contains(key));
    let new = after.revoked.difference(&before.revoked);
    new.map(|key| (*key, had(key).map(|(host, _)| host.clone()))).collect()
}

fn new_depot() -> (After, Generation, Option<Depot>) {
    (After { enrolled: Some(Enrolments::default()), begins: true, ..After::default() }, Generation::nothing(), None)
}

fn is_empty_folder(path: &Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

impl Refused {
    fn depot(error: DepotError) -> Self {
        Self::Depot(PublishError::Depot(error))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model { diagnostics, sources } => {
                write!(f, "{}", render(diagnostics, sources, false))?;
                write!(f, "the model was refused: {}", summary(diagnostics))
            }
            Self::Depot(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Model { .. } => None,
            Self::Depot(error) => Some(error),
        }
    }
}
