//! `cobctl catalogue`.

use cob_hub_api::{EntityKind, EntityWritten, ExchangeForm, Fault};
use cob_hub_client::Place;
use cobctl::failure::{CommandResult, Exit, Failure};
use cobctl::screen::Screen;
use cobctl::words::{clean, clean_lines, count};

use super::args::CatalogueCommand;
use super::{Context, failure, in_words, pairs, show};

pub(super) async fn run(context: &Context, screen: &mut Screen, command: CatalogueCommand) -> CommandResult {
    let client = &context.client;
    match command {
        CatalogueCommand::List { kind } => {
            let names = client.entities(kind).await.map_err(failure)?;
            if context.json {
                screen.json(&names)?;
            } else if names.is_empty() {
                screen.say(&format!("the catalogue has no {} that you may see", kind.section()));
            }
            for name in names.iter().filter(|_| !context.json) {
                screen.line(&clean(name))?;
            }
            Ok(Exit::Yes)
        }
        CatalogueCommand::Show { kind, name, version } => {
            let entity = client.entity(kind, &name, version.as_deref()).await.map_err(failure)?;
            if context.json {
                screen.json(&entity)?;
            } else {
                screen.say(&format!(
                    "version {} of {}, by {}",
                    show::short(&entity.version),
                    show::moment(entity.written_ms),
                    clean(&entity.author)
                ));
                let text =
                    serde_saphyr::to_string(&entity.definition).map_err(|e| Failure::environment(e.to_string()))?;
                screen.raw(&clean_lines(&text))?;
            }
            Ok(Exit::Yes)
        }
        CatalogueCommand::Versions { kind, name } => versions(context, screen, kind, &name).await,
        CatalogueCommand::Set { kind, name, file, shared } => {
            let definition = pairs::value(&file)?;
            let written = client.set_entity(kind, &name, &definition, place(shared)).await.map_err(failure)?;
            done(context, screen, &written, &format!("{} {name}", singular(kind)))
        }
        CatalogueCommand::Delete { kind, name, shared } => {
            let written = client.delete_entity(kind, &name, place(shared)).await.map_err(failure)?;
            done(context, screen, &written, &format!("{} {name}", singular(kind)))
        }
        CatalogueCommand::Export { coopr, shared } => export(context, screen, form(coopr), place(shared)).await,
        CatalogueCommand::Import { file, coopr, shared } => {
            let document = pairs::value(&file)?;
            let written = client.import(&document, form(coopr), place(shared)).await.map_err(failure)?;
            lost(context, screen, &written.lost, "a model");
            let text = version_of(&count(written.entities, "entity"), written.changed, &written.version);
            context.answer(screen, &written, &text)
        }
        CatalogueCommand::SetFile { path, file, shared } => {
            let content = pairs::bytes(&file)?;
            let written = client.set_file(&path, content, place(shared)).await.map_err(failure)?;
            done(context, screen, &written, &path)
        }
        CatalogueCommand::DeleteFile { path, shared } => {
            let written = client.delete_file(&path, place(shared)).await.map_err(failure)?;
            done(context, screen, &written, &path)
        }
    }
}

async fn versions(context: &Context, screen: &mut Screen, kind: EntityKind, name: &str) -> CommandResult {
    let versions = context.client.versions(kind, name).await.map_err(failure)?;
    if context.json {
        screen.json(&versions)?;
        return Ok(Exit::Yes);
    }
    let mut table = screen.table(&["VERSION", "WRITTEN", "AUTHOR"]);
    for version in &versions {
        table.add_row([show::short(&version.version), show::moment(version.written_ms), clean(&version.author)]);
    }
    for line in screen.lines(&table) {
        screen.line(&line)?;
    }
    Ok(Exit::Yes)
}

async fn export(context: &Context, screen: &mut Screen, form: ExchangeForm, place: Place) -> CommandResult {
    let exported = context.client.export(form, place).await.map_err(failure)?;
    lost(context, screen, &exported.lost, "Coopr");
    if context.json {
        screen.json(&exported)?;
        return Ok(Exit::Yes);
    }
    let text = match form {
        ExchangeForm::Model => {
            serde_saphyr::to_string(&exported.document).map_err(|e| Failure::environment(e.to_string()))?
        }
        ExchangeForm::Coopr => format!("{:#}\n", exported.document),
    };
    screen.raw(&clean_lines(&text))?;
    Ok(Exit::Yes)
}

/// Says what a form can't express.
fn lost(context: &Context, screen: &mut Screen, lost: &[Fault], form: &str) {
    for fault in lost.iter().filter(|_| !context.json) {
        screen.say(&format!("warning: {}", in_words(fault)));
    }
    if !lost.is_empty() && !context.json {
        screen.say(&format!("{} can't express {}", form, count(lost.len(), "part")));
    }
}

fn form(coopr: bool) -> ExchangeForm {
    if coopr { ExchangeForm::Coopr } else { ExchangeForm::Model }
}

fn place(shared: bool) -> Place {
    if shared { Place::Shared } else { Place::Tenant }
}

/// The word for a single entity of a kind.
fn singular(kind: EntityKind) -> &'static str {
    match kind {
        EntityKind::Providers => "provider",
        EntityKind::HardwareTypes => "hardware type",
        EntityKind::ImageTypes => "image type",
        EntityKind::Services => "service",
        EntityKind::Templates => "template",
    }
}

fn done(context: &Context, screen: &mut Screen, written: &EntityWritten, what: &str) -> CommandResult {
    context.answer(screen, written, &version_of(what, written.changed, &written.version))
}

fn version_of(what: &str, changed: bool, version: &str) -> String {
    let version = show::short(version);
    if changed {
        format!("{what}: version {version}")
    } else {
        format!("{what}: nothing differs from version {version}")
    }
}
