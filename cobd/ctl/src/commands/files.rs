//! `cobctl resolve`, `files log|show|restore`: earlier and desired versions of a change object's files.

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::Command;

use cob_types::CobId;
use cob_types::api::{Done, FilesAnswer, order};
use tempfile::NamedTempFile;

use super::Context;
use super::orders::patiently;
use crate::args::{FilesArgs, FilesCommand, ResolveArgs};
use crate::failure::{CommandResult, Exit, Failure};
use crate::screen::Screen;
use crate::targets::Target;
use crate::words::{clean, clean_lines};

/// The conflict markers.
const MARKS: [&str; 3] = ["<<<<<<< ", "||||||| ", ">>>>>>> "];
/// How many digits of a version are shown.
const DIGITS: usize = 12;

pub(super) async fn resolve(context: &Context, screen: &mut Screen, args: &ResolveArgs) -> CommandResult {
    let target = context.locate(&args.cob.host()).await?;
    let done = if args.edit {
        edited(context, screen, &target, args).await?
    } else {
        let choice = if args.ours { order::ChoiceWord::Ours } else { order::ChoiceWord::Theirs };
        decide(context, screen, &target, args, args.path.clone(), None, choice).await?
    };
    // A change object that has failed because of the conflict tries again.
    let again = order::Retry { cob: args.cob.clone(), who: None };
    let asked = context.client.order(&target.endpoint, &again);
    match patiently(context, screen, &target, asked).await {
        // A change object that is new in that generation can't be retried yet.
        Err(error) if args.generation.is_some() && error.is_not_found() => {}
        answer => _ = answer?,
    }
    context.answer(screen, &done, &format!("{}: {}", args.cob, clean(&done.detail)))?;
    Ok(Exit::Yes)
}

/// Resolves a conflict with a text that the user edits.
async fn edited(context: &Context, screen: &mut Screen, target: &Target, args: &ResolveArgs) -> Result<Done, Failure> {
    let generation = args.generation.map(|named| context.generation(named)).transpose()?;
    let generation = generation.map(|generation| generation.to_string());
    let mut query: Vec<_> = args.path.iter().map(|p| ("path", p.as_str())).collect();
    query.extend(generation.iter().map(|generation| ("generation", generation.as_str())));
    let answer = ask_at(context, target, &args.cob, "hunks", &query).await?;
    let editor = editor()?;
    let file = written(&answer.text)?;
    match edit(&editor, file.path()) {
        Ok(text) => {
            let path = answer.path.or_else(|| args.path.clone());
            let decided =
                decide(context, screen, target, args, path, answer.conflict, order::ChoiceWord::Edited(text)).await;
            // The decided conflict may not exist any more.
            decided.map_err(|failure| {
                let then = |_: &str| "look at the new conflict, and reuse the fitting parts of your edit".to_owned();
                keep(file, &answer.text, failure, then)
            })
        }
        Err(failure) => {
            let then = |path: &str| format!("`VISUAL='cp {path}' cobctl resolve … --edit` uses it");
            Err(keep(file, &answer.text, failure, then))
        }
    }
}

async fn decide(
    context: &Context,
    screen: &mut Screen,
    target: &Target,
    args: &ResolveArgs,
    path: Option<String>,
    conflict: Option<String>,
    choice: order::ChoiceWord,
) -> Result<Done, Failure> {
    let (cob, generation) = (args.cob.clone(), args.generation.map(|named| context.generation(named)).transpose()?);
    let order = order::Resolve { cob, path, conflict, generation, choice, who: None };
    let asked = context.client.order(&target.endpoint, &order);
    match patiently(context, screen, target, asked).await {
        // The host does not yet have a change object of a later generation.
        Err(error) if args.generation.is_some() => Err(error.into()),
        answer => context.answer_of(&args.cob, answer).await,
    }
}

pub(super) async fn walk(context: &Context, screen: &mut Screen, args: &FilesArgs) -> CommandResult {
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
            print(context, screen, &ask(context, cob, "show", &query).await?)?;
        }
        FilesCommand::Patch { cob } => print(context, screen, &ask(context, cob, "patch", &[]).await?)?,
        FilesCommand::Restore { cob, version, path } => {
            let target = context.locate(&cob.host()).await?;
            let (version, path) = (version.clone(), path.clone());
            let order = order::Restore { cob: cob.clone(), version, path, who: None };
            let asked = context.client.order(&target.endpoint, &order);
            let done = context.answer_of(cob, patiently(context, screen, &target, asked).await).await?;
            context.answer(screen, &done, &clean(&done.detail))?;
        }
    }
    Ok(Exit::Yes)
}

fn print(context: &Context, screen: &mut Screen, answer: &FilesAnswer) -> io::Result<()> {
    if context.json { screen.json(answer) } else { screen.raw(&shown(screen, &answer.text)) }
}

/// Asks a daemon about the files of a change object.
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
    let asked = context.client.get(&target.endpoint, &format!("/v1/files/{what}/{cob}{question}")).await;
    context.answer_of(cob, asked).await
}

/// Escapes a value for a query.
fn escaped(value: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/".contains(&b);
    value.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// Removes control sequences if the output is a terminal.
pub(super) fn shown(screen: &Screen, text: &str) -> String {
    if screen.is_live() { clean_lines(text) } else { text.to_owned() }
}

fn undecided(what: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("no conflict was decided: {what}"))
}

/// The editor of the user.
fn editor() -> Result<String, Failure> {
    if !std::io::stdin().is_terminal() && std::env::var_os("EDITOR").is_none() && std::env::var_os("VISUAL").is_none() {
        return Err(undecided("no editor is available").hint("set EDITOR, or use --ours or --theirs"));
    }
    let set = |name: &str| std::env::var(name).ok().filter(|e| !e.trim().is_empty());
    Ok(set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned()))
}

/// A temporary file with this text, for the editor.
fn written(text: &str) -> Result<NamedTempFile, Failure> {
    let mut file = NamedTempFile::new().map_err(undecided)?;
    file.write_all(text.as_bytes()).and_then(|()| file.flush()).map_err(undecided)?;
    Ok(file)
}

/// Lets the user edit a file, and returns its content.
fn edit(editor: &str, file: &Path) -> Result<String, Failure> {
    // As in git, the variable may contain arguments.
    let ended = Command::new("/bin/sh").args(["-c", &format!("{editor} \"$1\""), "edit"]).arg(file).status();
    match ended {
        Ok(status) if status.success() => {}
        Ok(status) => return Err(undecided(format!("the editor {editor} ended with {status}"))),
        Err(error) => return Err(undecided(format!("the editor {editor}: {error}"))),
    }
    let edited =
        String::from_utf8(fs::read(file).map_err(undecided)?).map_err(|_| undecided("the text is not UTF-8"))?;
    if edited.lines().any(|line| MARKS.iter().any(|mark| line.starts_with(mark))) {
        return Err(undecided("the text still contains conflict markers"));
    }
    Ok(edited)
}

/// Keeps the edited file after a failure, and adds a hint with its path and the next step `then`.
fn keep(file: NamedTempFile, given: &str, failure: Failure, then: impl Fn(&str) -> String) -> Failure {
    if fs::read(file.path()).is_ok_and(|text| text == given.as_bytes()) {
        return failure;
    }
    let Ok((_, path)) = file.keep() else { return failure };
    let path = path.display().to_string();
    failure.hint(format!("the edited text is kept in {path}; {}", then(&path)))
}

fn time(seconds: u64) -> String {
    crate::words::utc(seconds.saturating_mul(1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edited_file_is_kept_when_the_decision_fails() {
        let given = "<<<<<<< here\na\n";
        let folder = tempfile::tempdir().expect("a folder");
        let edited = |editor: &str| {
            let file = tempfile::Builder::new().tempfile_in(folder.path()).expect("a file");
            fs::write(file.path(), given).expect("written");
            let failure = edit(editor, file.path()).expect_err("undecided");
            let (mut screen, written) = Screen::memory();
            let path = file.path().to_owned();
            keep(file, given, failure, str::to_owned).print(&mut screen);
            let told = written.err();
            assert_eq!(path.exists(), told.contains(&format!("is kept in {}", path.display())), "{told}");
            (told, fs::read(path).ok())
        };
        let (told, kept) = edited("sed -i s/a/b/");
        assert!(
            told.contains("still contains conflict markers") && kept.as_deref() == Some(b"<<<<<<< here\nb\n"),
            "{told}"
        );
        let (told, kept) = edited("printf '\\344' >");
        assert!(told.contains("is not UTF-8") && kept.as_deref() == Some(b"\xe4"), "{told}");
        let (told, kept) = edited("f() { echo b >\"$1\"; false; }; f");
        assert!(told.contains("ended with exit status: 1") && kept.as_deref() == Some(b"b\n"), "{told}");
        let (told, kept) = edited("true");
        assert!(told.contains("still contains conflict markers") && kept.is_none(), "no text was edited: {told}");
    }

    #[test]
    fn a_path_is_unchanged_in_a_query() {
        assert_eq!(escaped("/etc/a b&c=ü%"), "/etc/a%20b%26c%3D%C3%BC%25");
    }
}
