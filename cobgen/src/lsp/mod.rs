//! `cobgen lsp`: the Language Server Protocol for models, over standard input and output.
//!
//! An editor sends the texts that it has open; the server checks the model with these texts in place of the files, as
//! `cobgen check` does. It answers from the texts and from the JSON Schema, so that an incomplete line still gets
//! completions.
//!
//! ```text
//! mod (requests, one loop) ── checker (a thread: findings) ── buffers (open texts, the model of a file)
//!                          ├─ trial (a thread: layout and plan)
//!                          └─ cursor (keys above a place) ── form (JSON Schema) ── outline (names in a model) ── rename ── variables
//! ```

mod buffers;
mod checker;
mod cursor;
mod form;
mod outline;
mod rename;
mod trial;
mod variables;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use buffers::{Buffers, path_of, uri_of};
use checker::Checker;
use cursor::Cursor;
use lsp_server::{Connection, ErrorCode, Message, Notification, Request, Response};
use lsp_types::notification::{
    DidChangeTextDocument, DidCloseTextDocument, DidOpenTextDocument, DidSaveTextDocument, Notification as _,
};
use lsp_types::request::{
    Completion, DocumentSymbolRequest, ExecuteCommand, Formatting, GotoDefinition, HoverRequest, PrepareRenameRequest,
    References, Rename, Request as _,
};
use lsp_types::{
    CompletionItem, CompletionItemKind, CompletionOptions, CompletionResponse, DocumentSymbolResponse, Documentation,
    ExecuteCommandOptions, GotoDefinitionResponse, Hover, HoverContents, HoverProviderCapability, Location,
    MarkupContent, MarkupKind, OneOf, Position, PrepareRenameResponse, Range, RenameOptions, ServerCapabilities,
    SymbolInformation, SymbolKind, TextDocumentPositionParams, TextDocumentSyncCapability, TextDocumentSyncKind,
    TextEdit, Uri, WorkDoneProgressOptions, WorkspaceEdit,
};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use trial::Trials;

use crate::format::Formatter;

/// Why the server ended early: the connection, or a message that no editor may send.
pub(crate) type Ended = Box<dyn Error + Send + Sync>;

/// Serves an editor until it asks for the end.
///
/// `model` is the file or folder of the model; without it, it is found from each opened file. `depot` has the generations
/// for plans.
///
/// # Errors
/// When the connection breaks, or its first message is no `initialize`.
pub(crate) fn serve(connection: &Connection, model: Option<PathBuf>, depot: Option<PathBuf>) -> Result<(), Ended> {
    connection.initialize(serde_json::to_value(capabilities(depot.is_some()))?)?;
    let editor = || {
        let editor = connection.sender.clone();
        move |message| editor.send(message).is_ok()
    };
    let (checker, trials) = (Checker::start(editor()), Trials::start(depot, editor()));
    let mut server = Server { buffers: Buffers::new(model), checker, trials, formatter: Arc::default() };
    for message in &connection.receiver {
        match message {
            Message::Request(request) => {
                if connection.handle_shutdown(&request)? {
                    return Ok(());
                }
                let response = match request.method.as_str() {
                    ExecuteCommand::METHOD => server.try_out(request),
                    _ => Some(server.answer(request)),
                };
                if let Some(response) = response {
                    connection.sender.send(Message::Response(response))?;
                }
            }
            Message::Notification(notification) => server.take(notification),
            // The server asks nothing.
            Message::Response(_) => {}
        }
    }
    Ok(())
}

fn capabilities(has_depot: bool) -> ServerCapabilities {
    ServerCapabilities {
        text_document_sync: Some(TextDocumentSyncCapability::Kind(TextDocumentSyncKind::FULL)),
        completion_provider: Some(CompletionOptions {
            trigger_characters: Some([" ", "/", "[", "{"].map(str::to_owned).to_vec()),
            ..CompletionOptions::default()
        }),
        hover_provider: Some(HoverProviderCapability::Simple(true)),
        definition_provider: Some(OneOf::Left(true)),
        references_provider: Some(OneOf::Left(true)),
        document_symbol_provider: Some(OneOf::Left(true)),
        document_formatting_provider: Some(OneOf::Left(true)),
        execute_command_provider: Some(ExecuteCommandOptions {
            commands: Trials::commands(has_depot),
            ..ExecuteCommandOptions::default()
        }),
        rename_provider: Some(OneOf::Right(RenameOptions {
            prepare_provider: Some(true),
            work_done_progress_options: WorkDoneProgressOptions::default(),
        })),
        ..ServerCapabilities::default()
    }
}

struct Server {
    buffers: Buffers,
    checker: Checker,
    trials: Trials,
    formatter: Arc<Mutex<Formatter>>,
}

impl Server {
    fn take(&mut self, notification: Notification) {
        let Notification { method, params } = notification;
        let changed = match method.as_str() {
            DidOpenTextDocument::METHOD => read::<lsp_types::DidOpenTextDocumentParams>(params)
                .map(|open| (open.text_document.uri, Some(open.text_document.text))),
            DidChangeTextDocument::METHOD => read::<lsp_types::DidChangeTextDocumentParams>(params)
                // Each change is a whole text: the server asks for it so.
                .and_then(|change| Some((change.text_document.uri, change.content_changes.into_iter().next_back()?)))
                .map(|(uri, change)| (uri, Some(change.text))),
            DidCloseTextDocument::METHOD => {
                read::<lsp_types::DidCloseTextDocumentParams>(params).map(|closed| (closed.text_document.uri, None))
            }
            DidSaveTextDocument::METHOD => {
                let saved = read::<lsp_types::DidSaveTextDocumentParams>(params);
                if let Some(path) = saved.and_then(|saved| path_of(&saved.text_document.uri)) {
                    self.check(&path);
                }
                None
            }
            _ => None,
        };
        let Some((path, text)) = changed.and_then(|(uri, text)| Some((path_of(&uri)?, text))) else { return };
        match &text {
            Some(text) if method == DidOpenTextDocument::METHOD => self.format_ahead(path.clone(), text.clone()),
            Some(_) => {}
            None => self.formatter.lock().unwrap_or_else(PoisonError::into_inner).forget(&path),
        }
        self.buffers.set(&path, text);
        self.check(&path);
    }

    /// Formats a text, so that the formatter knows its parts when the editor asks.
    fn format_ahead(&self, path: PathBuf, text: String) {
        let formatter = Arc::clone(&self.formatter);
        thread::spawn(move || formatter.lock().unwrap_or_else(PoisonError::into_inner).format(&path, &text).is_ok());
    }

    fn check(&self, path: &Path) {
        self.checker.check(self.buffers.model_of(path), self.buffers.texts().clone());
    }

    /// Lets the thread of trials answer; or the answer why it can't.
    fn try_out(&self, request: Request) -> Option<Response> {
        self.trials.ask(request.id, request.params, |argument| {
            let path = path_of(&argument.uri)?;
            Some((self.buffers.model_of(&path), self.buffers.texts().clone()))
        })
    }

    fn answer(&self, request: Request) -> Response {
        let Request { id, method, params } = request;
        let answer = match method.as_str() {
            Completion::METHOD => read(params).map(|at: lsp_types::CompletionParams| {
                json_of(self.at(&at.text_document_position).map(|place| place.completions()))
            }),
            HoverRequest::METHOD => read(params).map(|at: lsp_types::HoverParams| {
                json_of(self.at(&at.text_document_position_params).and_then(|place| place.hover()))
            }),
            GotoDefinition::METHOD => read(params)
                .map(|at: lsp_types::GotoDefinitionParams| json_of(self.definition(&at.text_document_position_params))),
            References::METHOD => read(params).map(|of: lsp_types::ReferenceParams| {
                json_of(self.references(&of.text_document_position, of.context.include_declaration))
            }),
            DocumentSymbolRequest::METHOD => {
                read(params).map(|of: lsp_types::DocumentSymbolParams| json_of(self.symbols(&of.text_document.uri)))
            }
            PrepareRenameRequest::METHOD => {
                match read(params).map(|at: TextDocumentPositionParams| self.renamed(&at, None)) {
                    Some(Err(why)) => return refused(id, why),
                    Some(Ok((target, _))) => Some(json_of(PrepareRenameResponse::Range(target.range))),
                    None => None,
                }
            }
            Rename::METHOD => {
                let renamed = read(params)
                    .map(|of: lsp_types::RenameParams| self.renamed(&of.text_document_position, Some(&of.new_name)));
                match renamed {
                    Some(Err(why)) => return refused(id, why),
                    Some(Ok((_, edit))) => Some(json_of(edit)),
                    None => None,
                }
            }
            Formatting::METHOD => read(params)
                .map(|of: lsp_types::DocumentFormattingParams| json_of(self.formatted(&of.text_document.uri))),
            _ => {
                let what = format!("cobgen lsp does not answer {method}");
                return Response::new_err(id, ErrorCode::MethodNotFound as i32, what);
            }
        };
        match answer {
            Some(answer) => Response::new_ok(id, answer),
            None => {
                Response::new_err(id, ErrorCode::InvalidParams as i32, format!("the parameters of {method} are wrong"))
            }
        }
    }

    /// Does something with the name at a place.
    fn with_target<T>(
        &self,
        at: &TextDocumentPositionParams,
        then: impl FnOnce(&Path, &rename::Texted<'_>, rename::Target) -> Result<T, String>,
    ) -> Result<T, String> {
        let path = path_of(&at.text_document.uri).ok_or("the address is not of a file")?;
        let model = self.buffers.model_of(&path);
        let files = self.buffers.files_of(&model);
        let names = names_of(&files);
        let texted = rename::Texted { files: &files, names: &names };
        let target = texted.target(&path, at.position.line, at.position.character)?;
        then(&model, &texted, target)
    }

    /// The name at a place, and the edits that give it another name.
    fn renamed(
        &self,
        at: &TextDocumentPositionParams,
        new: Option<&str>,
    ) -> Result<(rename::Target, WorkspaceEdit), String> {
        self.with_target(at, |model, texted, target| {
            let Some(new) = new else { return Ok((target, WorkspaceEdit::default())) };
            let edits = texted.edits(&target, new)?;
            rename::verify(&target, model, self.buffers.texts(), &edits, texted.files)?;
            // The addresses are keys of a map in the protocol.
            #[expect(clippy::mutable_key_type, reason = "an address of a file never changes")]
            let changes = edits.into_iter().filter_map(|(path, edits)| Some((uri_of(&path)?, edits))).collect();
            Ok((target, WorkspaceEdit::new(changes)))
        })
    }

    /// Where the name at a place is used. A place without a name has none.
    fn references(&self, at: &TextDocumentPositionParams, with_definitions: bool) -> Vec<Location> {
        let found = self.with_target(at, |_, texted, target| {
            let definitions = if with_definitions { Vec::new() } else { texted.definitions(&target) };
            Ok(texted.places(&target).into_iter().filter(|place| !definitions.contains(place)).collect())
        });
        locations(found.unwrap_or_default())
    }

    fn definition(&self, at: &TextDocumentPositionParams) -> Option<GotoDefinitionResponse> {
        let path = path_of(&at.text_document.uri)?;
        let files = self.buffers.files_of(&self.buffers.model_of(&path));
        let texted = rename::Texted { files: &files, names: &[] };
        match texted.variable_definitions(&path, at.position.line, at.position.character) {
            Some(places) => Some(GotoDefinitionResponse::Array(locations(places))),
            None => self.at(at).and_then(|place| place.definition()),
        }
    }

    fn at(&self, place: &TextDocumentPositionParams) -> Option<AtPlace<'_>> {
        let path = path_of(&place.text_document.uri)?;
        let text = self.buffers.text(&path)?;
        let cursor = Cursor::at(&text, place.position.line, place.position.character);
        Some(AtPlace { buffers: &self.buffers, path, cursor })
    }

    /// The edit that formats a text. A wrong text gets none: its errors are shown already.
    fn formatted(&self, uri: &Uri) -> Option<Vec<TextEdit>> {
        let path = path_of(uri)?;
        let text = self.buffers.text(&path)?;
        let mut formatter = self.formatter.lock().unwrap_or_else(PoisonError::into_inner);
        let formatted = formatter.format(&path, &text).ok()?;
        if formatted == *text {
            return Some(Vec::new());
        }
        let lines = u32::try_from(text.lines().count()).unwrap_or(u32::MAX);
        let all = Range::new(Position::new(0, 0), Position::new(lines.saturating_add(1), 0));
        Some(vec![TextEdit::new(all, formatted)])
    }

    fn symbols(&self, uri: &Uri) -> Option<DocumentSymbolResponse> {
        let path = path_of(uri)?;
        let found = outline::of_text(&self.buffers.text(&path)?);
        // The sections and their entries.
        let symbols = found.into_iter().filter(|entry| entry.keys.len() <= 2).filter_map(|entry| {
            let (name, above) = entry.keys.split_last()?;
            let location = Location { uri: uri.clone(), range: entry.range() };
            let kind = if above.is_empty() { SymbolKind::NAMESPACE } else { SymbolKind::OBJECT };
            #[expect(deprecated, reason = "the field has no default")]
            Some(SymbolInformation {
                name: name.clone(),
                kind,
                tags: None,
                deprecated: None,
                location,
                container_name: above.first().cloned(),
            })
        });
        Some(DocumentSymbolResponse::Flat(symbols.collect()))
    }
}

/// A place in a text of a model.
struct AtPlace<'a> {
    buffers: &'a Buffers,
    path: PathBuf,
    cursor: Cursor,
}

impl AtPlace<'_> {
    fn names(&self) -> Vec<(PathBuf, outline::Entry)> {
        names_of(&self.buffers.files_of(&self.buffers.model_of(&self.path)))
    }

    fn completions(&self) -> CompletionResponse {
        let item = |label: String, kind, documentation: Option<String>| CompletionItem {
            label,
            kind: Some(kind),
            documentation: documentation.map(Documentation::String),
            ..CompletionItem::default()
        };
        let mut items: Vec<CompletionItem> = Vec::new();
        if let Some(key) = &self.cursor.value_of {
            let values = form::values(&self.cursor.keys, &self.cursor.kind);
            items.extend(values.into_iter().map(|value| item(value, CompletionItemKind::VALUE, None)));
            let names = self.names();
            let entries: Vec<&outline::Entry> = names.iter().map(|(_, entry)| entry).collect();
            let refers = outline::targets(key, &entries).into_iter();
            items.extend(refers.map(|name| item(name, CompletionItemKind::REFERENCE, None)));
        } else {
            for (key, about) in form::keys(&self.cursor.keys, &self.cursor.kind) {
                if !self.cursor.siblings.contains(&key) {
                    let mut item = item(key.clone(), CompletionItemKind::PROPERTY, about);
                    item.insert_text = Some(format!("{key}: "));
                    items.push(item);
                }
            }
        }
        CompletionResponse::Array(items)
    }

    fn hover(&self) -> Option<Hover> {
        let word = self.cursor.word.as_ref()?;
        let about = form::about(&self.cursor.keys, &self.cursor.kind, self.cursor.value_of.as_deref(), word)?;
        let value = format!("**{word}**\n\n{about}");
        let contents = HoverContents::Markup(MarkupContent { kind: MarkupKind::Markdown, value });
        Some(Hover { contents, range: None })
    }

    fn definition(&self) -> Option<GotoDefinitionResponse> {
        let word = self.cursor.word.as_ref()?;
        let names = self.names();
        let service = self.cursor.service.as_deref();
        let found = names.iter().filter(|(_, entry)| entry.is_named(word, service));
        let places: Vec<Location> =
            found.filter_map(|(path, entry)| Some(Location { uri: uri_of(path)?, range: entry.range() })).collect();
        (!places.is_empty()).then_some(GotoDefinitionResponse::Array(places))
    }
}

fn locations(places: Vec<(PathBuf, Range)>) -> Vec<Location> {
    places.into_iter().filter_map(|(path, range)| Some(Location { uri: uri_of(&path)?, range })).collect()
}

/// The names in the texts of a model.
fn names_of(files: &[(PathBuf, String)]) -> Vec<(PathBuf, outline::Entry)> {
    let of = |(path, text): &(PathBuf, String)| {
        let path = path.clone();
        outline::of_text(text).into_iter().map(move |entry| (path.clone(), entry))
    };
    files.iter().flat_map(of).collect()
}

/// The answer to a request that can't be carried out, for the person at the editor.
fn refused(id: lsp_server::RequestId, why: String) -> Response {
    Response::new_err(id, ErrorCode::RequestFailed as i32, why)
}

fn read<T: DeserializeOwned>(params: Json) -> Option<T> {
    serde_json::from_value(params).ok()
}

fn json_of<T: serde::Serialize>(answer: T) -> Json {
    serde_json::to_value(answer).unwrap_or_default()
}

/// A range in a line, in characters of the protocol.
fn range(line: u32, from: u32, to: u32) -> Range {
    Range { start: Position { line, character: from }, end: Position { line, character: to } }
}

#[cfg(test)]
mod tests;
