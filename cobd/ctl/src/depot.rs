//! The depot's reading side: which generations there are and which hosts they name.
//!
//! A depot is a bare git repository; generation N is the commit at `refs/generations/N`, and its tree
//! holds `manifest.cbor`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use cob_types::generation::{FORMAT, MAX_MANIFEST};
use cob_types::{GenerationNumber, Manifest, codec};

use crate::failure::Failure;

const REFS: &str = "refs/generations/";

/// A depot in a folder.
#[derive(Debug, Clone)]
pub struct Depot {
    path: PathBuf,
}

impl Depot {
    /// Opens a depot.
    ///
    /// # Errors
    /// [`Failure`] when there is none.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let depot = Self { path: path.to_owned() };
        depot.repository()?;
        Ok(depot)
    }

    /// Its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The newest generation; none: it is empty.
    ///
    /// # Errors
    /// [`Failure`] when it can't be read.
    pub fn latest(&self) -> Result<Option<GenerationNumber>, Failure> {
        let repository = self.repository()?;
        let read = || -> anyhow::Result<Option<GenerationNumber>> {
            let mut newest = None;
            for name in repository.references_glob(&format!("{REFS}*"))?.names() {
                let number = name?.strip_prefix(REFS).and_then(|n| n.parse().ok()).map(GenerationNumber);
                newest = newest.max(number);
            }
            Ok(newest)
        };
        read().with_context(|| format!("the depot {} can't be read", self.path.display())).map_err(Failure::usage)
    }

    /// The manifest of a generation.
    ///
    /// # Errors
    /// [`Failure`] when there is no such generation, or it can't be read.
    pub fn read_manifest(&self, number: GenerationNumber) -> Result<Manifest, Failure> {
        let repository = self.repository()?;
        let Ok(found) = repository.find_reference(&format!("{REFS}{number}")) else {
            let newest = self.latest()?.map_or("it holds none".to_owned(), |n| format!("its newest is {n}"));
            return Err(Failure::usage(anyhow::anyhow!(
                "the depot {} has no generation {number}",
                self.path.display()
            ))
            .hint(newest));
        };
        let read = || -> anyhow::Result<Manifest> {
            let tree = found.peel_to_commit()?.tree()?;
            let blob = tree
                .get_name("manifest.cbor")
                .context("it has no manifest.cbor")?
                .to_object(&repository)?
                .peel_to_blob()?;
            let manifest: Manifest = codec::decode(blob.content(), MAX_MANIFEST)?;
            anyhow::ensure!(
                manifest.format == FORMAT,
                "its format {} is not understood (this program reads {FORMAT})",
                manifest.format
            );
            anyhow::ensure!(
                manifest.generation == number,
                "its manifest is that of generation {}",
                manifest.generation
            );
            Ok(manifest)
        };
        read()
            .with_context(|| format!("generation {number} of the depot {} can't be read", self.path.display()))
            .map_err(Failure::usage)
    }

    fn repository(&self) -> Result<git2::Repository, Failure> {
        git2::Repository::open_bare(&self.path)
            .with_context(|| format!("{} is no depot", self.path.display()))
            .map_err(|e| Failure::usage(e).hint("a depot is the folder that `cobgen generate MODEL --depot DIR` makes"))
    }
}
