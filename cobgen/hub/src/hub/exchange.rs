//! Documents with all entities of a part of the catalogue.

use std::collections::BTreeMap;

use cob_hub_api::{Definitions, EntityKind, ExchangeForm, ExportedEntities, ImportedEntities};
use cob_permissions::Action;
use serde_json::Value;

use super::seat::CATALOGUE;
use super::{Caller, Hub, HubError};
use crate::catalogue::{Catalogue, CatalogueError, Part};

impl Hub {
    /// The entities of a part of the catalogue that the caller may see.
    ///
    /// # Errors
    ///
    /// The catalogue can't be read.
    pub async fn export(
        &self,
        caller: &Caller,
        form: ExchangeForm,
        shared: bool,
    ) -> Result<ExportedEntities, HubError> {
        let part = self.part_to_write(caller, shared)?;
        let is_shared = part == Part::Shared;
        let mut definitions = Definitions::new();
        for kind in EntityKind::ALL {
            let found = self.listed(part.clone(), kind).await?;
            let state = self.state.lock().await;
            let visible = self.visible(&state.directory, caller, kind, &found);
            for (name, entity) in visible.filter(|(_, entity)| entity.is_shared == is_shared) {
                definitions.entry(kind).or_default().insert(name.clone(), entity.definition.clone());
            }
        }
        match form {
            ExchangeForm::Model => Ok(ExportedEntities {
                document: serde_json::to_value(definitions).map_err(|e| HubError::Internal(e.to_string()))?,
                lost: Vec::new(),
            }),
            ExchangeForm::Coopr => self.in_catalogue(move |catalogue| catalogue.to_coopr(&definitions)).await,
        }
    }

    /// Writes all entities of a document into a part of the catalogue, in a single version; other entities stay.
    ///
    /// # Errors
    ///
    /// The caller may not write each of them, the document can't be read, or the model would be wrong.
    pub async fn import(
        &self,
        caller: &Caller,
        document: Value,
        form: ExchangeForm,
        shared: bool,
    ) -> Result<ImportedEntities, HubError> {
        let part = self.part_to_write(caller, shared)?;
        let read = move |catalogue: &Catalogue| match form {
            ExchangeForm::Model => serde_json::from_value(document)
                .map(|definitions| (definitions, Vec::new()))
                .map_err(|e| CatalogueError::BadDocument(e.to_string())),
            ExchangeForm::Coopr => catalogue.of_coopr(&document),
        };
        let (definitions, lost): (Definitions, _) = self.in_catalogue(read).await?;
        let is_shared = part == Part::Shared;
        let state = self.state.lock().await;
        for (kind, name) in definitions.iter().flat_map(|(kind, named)| named.keys().map(move |name| (*kind, name))) {
            let thing = self.thing(caller, kind, name, is_shared)?;
            self.decide(&state.directory, caller, Action::Write, &thing, true)?;
        }
        drop(state);
        let entities = definitions.values().map(BTreeMap::len).sum();
        self.note(caller, None, None, "allowed")?;
        let author = caller.subject.user.name.to_string();
        let written = self.in_catalogue(move |catalogue| catalogue.set_all(&part, &definitions, &author)).await?;
        self.copy(&[CATALOGUE.to_owned()]).await?;
        Ok(ImportedEntities { version: written.version, changed: written.changed, entities, lost })
    }
}
