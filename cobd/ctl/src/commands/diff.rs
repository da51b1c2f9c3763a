//! `cobctl diff`: differences between present and desired files, of a change object, a host, or all hosts.

use std::collections::BTreeSet;
use std::sync::Arc;

use cob_types::api::{FilesAnswer, StatusOf};
use cob_types::status::{CobStatus, HostStatus};
use cob_types::{CobId, GenerationNumber, HostName};
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::Context;
use super::files::{ask, shown};
use super::near::near;
use crate::args::{DiffArgs, Which};
use crate::client::{AskError, Client};
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather::{each, each_of, status};
use crate::identity;
use crate::screen::Screen;
use crate::targets::Target;
use crate::words::{clean, count, list};

/// The kind that has differences.
const KIND: &str = "file-tree";
/// How many file trees of a host are queried at the same time.
const AT_ONCE: usize = 8;

/// The JSON for several change objects. New versions only add fields.
#[derive(Serialize)]
struct DiffJson {
    hosts: Vec<OfHost>,
}

/// The file trees of a host.
#[skip_serializing_none]
#[derive(Serialize)]
struct OfHost {
    name: HostName,
    reachable: bool,
    error: Option<String>,
    /// `None`: the host has no generation, so no desired files are known.
    #[serialize_always]
    generation: Option<GenerationNumber>,
    /// How many file trees were compared.
    looked: usize,
    /// The file trees that differ.
    differing: Vec<Differing>,
    /// The file trees that could not be compared.
    unknown: Vec<Unknown>,
}

#[derive(Serialize)]
struct Differing {
    cob: CobId,
    #[serde(flatten)]
    answer: FilesAnswer,
}

#[derive(Serialize)]
struct Unknown {
    cob: CobId,
    why: String,
}

impl OfHost {
    fn exit(&self) -> Exit {
        match self {
            _ if !self.reachable => Exit::Unreached,
            _ if self.generation.is_none() => Exit::No,
            _ if self.differing.is_empty() && self.unknown.is_empty() => Exit::Yes,
            _ => Exit::No,
        }
    }
}

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &DiffArgs) -> CommandResult {
    if let [Which::Cob(cob)] = args.only.as_slice() {
        let generation = args.generation.map(|named| context.generation(named)).transpose()?;
        let generation = generation.map(|generation| generation.to_string());
        let query: Vec<_> = generation.iter().map(|generation| ("generation", generation.as_str())).collect();
        let answer = ask(context, cob, "diff", &query).await?;
        if context.json {
            screen.json(&answer)?;
        } else {
            tell(screen, &answer)?;
        }
        return Ok(if is_same(&answer) { Exit::Yes } else { Exit::No });
    }
    if args.generation.is_some() {
        return Err(Failure::usage("--generation needs a single change object")
            .hint("`cobctl switch N --prepare` names the file trees in conflict"));
    }
    let only: Arc<[Which]> = args.only.as_slice().into();
    let targets = targets(context, &only).await?;
    let answers = each(&context.client, &targets, |client, target| {
        let only = Arc::clone(&only);
        async move { of_host(&client, &target, &only).await }
    })
    .await;
    let told = DiffJson { hosts: answers.into_iter().map(|(_, of)| of).collect() };
    if context.json {
        screen.json(&told)?;
    } else {
        for host in &told.hosts {
            tell_host(screen, host)?;
        }
    }
    let fits = identity::tell(&context.client, &context.targets, &targets, screen).await?;
    Ok(Exit::of_all(told.hosts.iter().map(OfHost::exit).chain((!fits).then_some(Exit::No))))
}

/// The daemons to ask. For a named host, the daemon that answers to that name.
async fn targets(context: &Context, only: &[Which]) -> Result<Vec<Target>, Failure> {
    if only.is_empty() {
        return Ok(context.targets.all.clone());
    }
    let hosts: BTreeSet<HostName> = only.iter().map(Which::host).collect();
    let mut targets = Vec::with_capacity(hosts.len());
    for host in hosts {
        targets.push(context.locate(&host).await?);
    }
    Ok(targets)
}

/// The file trees of a host, each compared now.
async fn of_host(client: &Client, target: &Target, only: &[Which]) -> OfHost {
    let HostStatus { name, reachable, error, generation, cobs, .. } = status(client, target, StatusOf::All).await;
    let wanted = |cob: &CobId| only.is_empty() || only.iter().any(|which| which.covers(cob));
    let missing = only.iter().filter_map(|which| match which {
        Which::Cob(cob) if reachable && cob.host() == name => match cobs.iter().find(|c| c.id == *cob) {
            None => Some((cob, format!("no change object has this name{}", instead(&cobs, cob)))),
            Some(found) if found.kind == KIND => None,
            Some(found) => Some((cob, format!("it is of the kind {}: use `cobctl check`", found.kind))),
        },
        Which::Cob(_) | Which::Host(_) => None,
    });
    let unknown = missing.map(|(cob, why)| Unknown { cob: cob.clone(), why }).collect();
    let trees: Vec<CobId> = cobs.into_iter().filter(|c| c.kind == KIND && wanted(&c.id)).map(|c| c.id).collect();
    let answers = each_of(client, AT_ONCE, &trees, |client, cob| {
        let target = target.clone();
        async move { client.get::<FilesAnswer>(&target.endpoint, &format!("/v1/files/diff/{cob}")).await }
    })
    .await;
    let mut told = OfHost { name, reachable, error, generation, looked: 0, differing: Vec::new(), unknown };
    for (cob, answer) in answers {
        take(&mut told, cob, answer);
    }
    told
}

/// Suggestions for an id that the host does not have.
fn instead(cobs: &[CobStatus], cob: &CobId) -> String {
    let like = near(cobs.iter(), cob);
    if like.is_empty() {
        return ": `cobctl status` lists the change objects".to_owned();
    }
    format!(": did you mean {}?", list(like, 3))
}

fn take(told: &mut OfHost, cob: CobId, answer: Result<FilesAnswer, AskError>) {
    match answer {
        Ok(answer) => {
            told.looked += 1;
            if !is_same(&answer) {
                told.differing.push(Differing { cob, answer });
            }
        }
        Err(error) if error.is_from_daemon() => told.unknown.push(Unknown { cob, why: error.in_a_line() }),
        Err(error) => {
            told.reachable = false;
            told.error.get_or_insert_with(|| error.in_a_line());
        }
    }
}

fn is_same(answer: &FilesAnswer) -> bool {
    answer.text.is_empty() && answer.conflicts.is_empty()
}

/// Differences go to the standard output, usable as a patch; the number of compared trees goes to standard error.
fn tell_host(screen: &mut Screen, host: &OfHost) -> std::io::Result<()> {
    let OfHost { name, looked, differing, unknown, .. } = host;
    for Differing { cob, answer } in differing {
        screen.line(&format!("# {cob}"))?;
        tell(screen, answer)?;
    }
    for Unknown { cob, why } in unknown {
        screen.problem("warning", &format!("{cob}: unknown: {}", clean(why)));
    }
    if let Some(error) = host.error.as_ref().filter(|_| !host.reachable) {
        screen.problem("error", &format!("{name}: {}", clean(error)));
        return Ok(());
    }
    let (trees, differ) = (count(*looked, "file tree"), differing.len());
    let verb = if differ == 1 { "differs" } else { "differ" };
    screen.say(&match (looked, differ) {
        _ if host.generation.is_none() => format!("{name}: no generation yet, so no desired content"),
        (0, _) => format!("{name}: no file tree was compared"),
        (_, 0) => format!("{name}: {trees} compared, all equal"),
        _ => format!("{name}: {trees} compared, {differ} {verb}"),
    });
    Ok(())
}

fn tell(screen: &mut Screen, answer: &FilesAnswer) -> std::io::Result<()> {
    screen.raw(&shown(screen, &answer.text))?;
    for hunks in answer.conflicts.iter().filter_map(|c| Some((&c.path, c.hunks.as_ref()?))) {
        screen.line(&format!("conflict in {}, with both sides:", clean(hunks.0)))?;
        screen.raw(&shown(screen, hunks.1))?;
    }
    Ok(())
}
