//! `cobctl resolve`, `files log|show|restore`: a change object's files, as they were and should be.

use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::process::Command;

use cob_types::CobId;
use cobd::web::{ChoiceWord, CobOrder, FilesAnswer, ResolveOrder, RestoreOrder};

use super::Context;
use crate::args::{FilesArgs, FilesCommand, ResolveArgs};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::targets::Target;
use crate::words::{clean, clean_lines};

/// What stands where both sides of a conflict are.
const MARKS: [&str; 3] = ["<<<<<<< ", "||||||| ", ">>>>>>> "];
/// Digits of a version that are shown.
const DIGITS: usize = 12;

pub(super) async fn resolve(context: &Context, screen: &mut Screen, args: &ResolveArgs) -> Result<Exit, Failure> {
    let target = context.locate(&args.cob.host()).await?;
    let (mut path, mut conflict) = (args.path.clone(), None);
    let choice = if args.edit {
        let query: Vec<_> = path.iter().map(|p| ("path", p.as_str())).collect();
        let answer = ask_at(context, &target, &args.cob, "hunks", &query).await?;
        (path, conflict) = (answer.path.clone().or(path), answer.conflict.clone());
        ChoiceWord::Edited(edit(&answer.text)?)
    } else if args.ours {
        ChoiceWord::Ours
    } else {
        ChoiceWord::Theirs
    };
    let who = context.client.who();
    let order = ResolveOrder { cob: args.cob.clone(), path, conflict, choice, who: who.clone() };
    let done = context.client.order(&target.endpoint, "/v1/files/resolve", &order).await?;
    // One that has given up over it tries again.
    let again = CobOrder { cob: args.cob.clone(), who };
    context.client.order(&target.endpoint, "/v1/retry", &again).await?;
    if context.json {
        screen.json(&done)?;
    } else {
        screen.line(&format!("{}: {}", args.cob, clean(&done.detail)))?;
    }
    Ok(Exit::Yes)
}

pub(super) async fn walk(context: &Context, screen: &mut Screen, args: &FilesArgs) -> Result<Exit, Failure> {
    match &args.command {
        FilesCommand::Log { cob } => {
            let answer = ask(context, cob, "log", &[]).await?;
            if context.json {
                screen.json(&answer.versions)?;
                return Ok(Exit::Yes);
            }
            for version in &answer.versions {
                let id: String = version.id.chars().take(DIGITS).collect();
                let (when, paths) = (time(version.time), clean(&version.paths.join(" ")));
                screen.line(&format!(
                    "{id}  {when}  generation {}  {}  {paths}",
                    version.generation,
                    clean(&version.reason)
                ))?;
            }
        }
        FilesCommand::Show { cob, version, path } => {
            let mut query = vec![("version", version.as_str())];
            query.extend(path.iter().map(|p| ("path", p.as_str())));
            let answer = ask(context, cob, "show", &query).await?;
            if context.json {
                screen.json(&answer)?;
            } else {
                screen.raw(&shown(screen, &answer.text))?;
            }
        }
        FilesCommand::Patch { cob } => {
            let answer = ask(context, cob, "patch", &[]).await?;
            if context.json {
                screen.json(&answer)?;
            } else {
                screen.raw(&shown(screen, &answer.text))?;
            }
        }
        FilesCommand::Restore { cob, version, path } => {
            let target = context.locate(&cob.host()).await?;
            let (version, path) = (version.clone(), path.clone());
            let order = RestoreOrder { cob: cob.clone(), version, path, who: context.client.who() };
            let done = context.client.order(&target.endpoint, "/v1/files/restore", &order).await?;
            if context.json {
                screen.json(&done)?;
            } else {
                screen.line(&clean(&done.detail))?;
            }
        }
    }
    Ok(Exit::Yes)
}

/// What a daemon tells of the files of one of its change objects.
pub(super) async fn ask(
    context: &Context,
    cob: &CobId,
    what: &str,
    query: &[(&str, &str)],
) -> Result<FilesAnswer, Failure> {
    let target = context.locate(&cob.host()).await?;
    ask_at(context, &target, cob, what, query).await
}

async fn ask_at(
    context: &Context,
    target: &Target,
    cob: &CobId,
    what: &str,
    query: &[(&str, &str)],
) -> Result<FilesAnswer, Failure> {
    let query: Vec<String> = query.iter().map(|(key, value)| format!("{key}={}", escaped(value))).collect();
    let question = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    Ok(context.client.get(&target.endpoint, &format!("/v1/files/{what}/{cob}{question}")).await?)
}

/// A value as it stands in a query.
fn escaped(value: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/".contains(&b);
    value.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// On a terminal without what could steer it.
pub(super) fn shown(screen: &Screen, text: &str) -> String {
    if screen.is_live() { clean_lines(text) } else { text.to_owned() }
}

/// Lets a person edit a text.
fn edit(text: &str) -> Result<String, Failure> {
    let failed = |what: String| Failure::usage(anyhow::anyhow!("nothing was decided: {what}"));
    if !std::io::stdin().is_terminal() && std::env::var_os("EDITOR").is_none() && std::env::var_os("VISUAL").is_none() {
        return Err(failed("there is nobody to edit it".to_owned()).hint("set EDITOR, or take --ours or --theirs"));
    }
    let mut file = tempfile::NamedTempFile::new().map_err(|e| failed(e.to_string()))?;
    file.write_all(text.as_bytes()).and_then(|()| file.flush()).map_err(|e| failed(e.to_string()))?;
    let set = |name: &str| std::env::var(name).ok().filter(|e| !e.trim().is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    // As git does it: the variable may have arguments.
    let ended = Command::new("/bin/sh").args(["-c", &format!("{editor} \"$1\""), "edit"]).arg(file.path()).status();
    match ended {
        Ok(status) if status.success() => {}
        Ok(status) => return Err(failed(format!("the editor {editor} ended with {status}"))),
        Err(error) => return Err(failed(format!("the editor {editor}: {error}"))),
    }
    let edited = fs::read_to_string(file.path()).map_err(|e| failed(e.to_string()))?;
    if edited.lines().any(|line| MARKS.iter().any(|mark| line.starts_with(mark))) {
        return Err(failed("the text still has marks of the conflict in it".to_owned()).hint("edit it again"));
    }
    Ok(edited)
}

fn time(seconds: u64) -> String {
    crate::words::utc(seconds.saturating_mul(1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stands_in_a_query_as_it_is() {
        assert_eq!(escaped("/etc/a b&c=ü%"), "/etc/a%20b%26c%3D%C3%BC%25");
    }
}
