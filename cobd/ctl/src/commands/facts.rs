//! `cobctl facts`: the facts of hosts, as a section of a model.
//!
//! The output is stable as long as the hosts are: names in order, each value on its own line, so that a saved file can
//! be compared and kept with the model.

use std::collections::BTreeMap;

use cob_types::HostName;
use cob_types::facts::{FactsOf, HostFacts};
use serde::Serialize;
use serde_json::Value;

use super::Context;
use crate::args::FactsArgs;
use crate::client::Client;
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather::{each, why_silent};
use crate::screen::Screen;
use crate::targets::Target;
use crate::words::clean;

/// The section in the form of a model.
#[derive(Debug, Default, Serialize)]
struct Section {
    facts: BTreeMap<HostName, HostFacts>,
}

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &FactsArgs) -> CommandResult {
    let targets = context.only(&args.only).await?;
    let answers = each(&context.client, &targets, |client, target| async move { ask(&client, &target).await });
    let mut section = Section::default();
    let mut silent = 0;
    for (target, answer) in answers.await {
        let kept = answer.and_then(|of| match section.facts.insert(of.host.clone(), of.facts) {
            Some(_) => Err(format!("two daemons answer as {}", of.host)),
            None => Ok(()),
        });
        if let Err(why) = kept {
            silent += 1;
            screen.problem("error", &format!("{}: {}", target.stand_in(), clean(&why)));
        }
    }
    if context.json {
        screen.json(&section)?;
    } else {
        let value = serde_json::to_value(&section).map_err(Failure::environment)?;
        screen.line("# Hardware and system of the hosts, from `cobctl facts`.")?;
        for line in lines(&value) {
            screen.line(&line)?;
        }
    }
    Ok(if silent == 0 { Exit::Yes } else { Exit::Unreached })
}

/// The facts of a host, from its daemon.
async fn ask(client: &Client, target: &Target) -> Result<FactsOf, String> {
    let answer = client.get::<FactsOf>(&target.endpoint, "/v1/facts").await;
    let answer = answer.map_err(|error| why_silent(&error))?;
    target.is_answered_by(&answer.host).map(|()| answer)
}

/// Writes YAML: each key on its own line, in blocks; texts and lists as JSON, which is YAML too.
fn lines(value: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    block(value, 0, &mut lines);
    lines
}

fn block(value: &Value, depth: usize, lines: &mut Vec<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let (indent, key) = ("  ".repeat(depth), written(key));
        if value.as_object().is_some_and(|fields| !fields.is_empty()) {
            lines.push(format!("{indent}{key}:"));
            block(value, depth + 1, lines);
        } else {
            lines.push(format!("{indent}{key}: {value}"));
        }
    }
}

/// A key as plain YAML if possible, otherwise in quotes.
fn written(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let is_plain = key.starts_with(|c: char| c.is_ascii_lowercase()) && key.chars().all(plain);
    // Words that YAML readers interpret need quotes.
    let is_word = !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&key);
    if is_plain && is_word { key.to_owned() } else { Value::from(key).to_string() }
}

#[cfg(test)]
#[path = "facts_test.rs"]
mod tests;
