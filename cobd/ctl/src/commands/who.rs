//! `cobctl trust whoami` and `trust key`: the operator's identity on the hosts.

use cob_types::api::Whoami;
use cob_types::{HostName, PublicKey};
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::Context;
use crate::args::{Global, KeyArgs};
use crate::client::AskError;
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather::{self, is_refusal};
use crate::screen::Screen;
use crate::settings::Settings;
use crate::targets::Target;
use crate::words::clean;

/// The JSON of `trust whoami`.
#[skip_serializing_none]
#[derive(Serialize)]
struct Answers {
    key: Option<PublicKey>,
    hosts: Vec<Answer>,
}

#[skip_serializing_none]
#[derive(Serialize)]
struct Answer {
    host: HostName,
    reachable: bool,
    #[serde(flatten)]
    who: Option<Whoami>,
    error: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    hint: String,
}

/// The JSON of `trust key`.
#[derive(Serialize)]
struct Key {
    key: PublicKey,
    file: String,
}

pub(super) fn key(global: &Global, screen: &mut Screen, args: &KeyArgs) -> CommandResult {
    let settings = Settings::find(global)?;
    let key = if args.create { Some(settings.create_key()?.0) } else { settings.secret_key()? };
    let file = settings.key.as_ref().map(|k| k.path.display().to_string()).unwrap_or_default();
    let Some(key) = key else {
        return Err(Failure::usage(format!("you have no key at {file:?}"))
            .hint("`cobctl trust key --create` creates the key; --key names a different file"));
    };
    let key = key.public();
    if global.json {
        screen.json(&Key { key, file })?
    } else {
        screen.line(&key.to_string())?
    }
    Ok(Exit::Yes)
}

pub(super) async fn whoami(context: &Context, screen: &mut Screen) -> CommandResult {
    let answers = gather::each(&context.client, &context.targets.all, |client, target| async move {
        client.get::<Whoami>(&target.endpoint, "/v1/whoami").await
    })
    .await;
    let exit = Exit::of_all(answers.iter().map(|(_, answer)| Exit::of(answer)));
    let key = context.client.key();
    if context.json {
        let hosts = answers.into_iter().map(|(target, answer)| told(&target, answer)).collect();
        screen.json(&Answers { key, hosts })?;
        return Ok(exit);
    }
    if let Some(key) = key {
        screen.line(&format!("your key: {key}"))?;
    }
    let mut table = screen.table(&["HOST", "YOU ARE", "ROLE", "BY"]);
    let mut troubles = Vec::new();
    for (target, answer) in answers {
        let name = target.shown();
        match answer {
            Ok(who) => {
                table.add_row([name, clean(&who.name), who.role.to_string(), clean(&who.proof)]);
            }
            Err(error) => {
                let place = if is_refusal(&error) { "nobody" } else { "not known" };
                table.add_row([name.clone(), place.to_owned(), String::new(), String::new()]);
                troubles.push((name, error));
            }
        }
    }
    for line in screen.lines(&table) {
        screen.line(&line)?;
    }
    for (name, error) in troubles {
        screen.error(&format!("{name}: {}", error.in_a_line()), &error.hint());
    }
    Ok(exit)
}

fn told(target: &Target, answer: Result<Whoami, AskError>) -> Answer {
    let host = target.stand_in();
    match answer {
        Ok(who) => Answer { host, reachable: true, who: Some(who), error: None, hint: String::new() },
        Err(error) => Answer {
            host,
            reachable: is_refusal(&error),
            who: None,
            error: Some(error.in_a_line()),
            hint: error.hint(),
        },
    }
}
