//! The files of the page. `cobd/ctl/page/build.mjs` makes them from `cobd/ctl/page/src/hub`.

use std::sync::Arc;

use axum::Router;
use cob_api_server::page::{PageFile, files};

use crate::hub::Hub;

const FILES: [PageFile; 4] = [
    PageFile { path: "/", content: include_bytes!("../../../../cobd/ctl/page/bundle/hub.html") },
    PageFile { path: "/hub.js", content: include_bytes!("../../../../cobd/ctl/page/bundle/hub.js") },
    PageFile { path: "/hub.css", content: include_bytes!("../../../../cobd/ctl/page/bundle/hub.css") },
    PageFile { path: "/icon.svg", content: include_bytes!("../../../../cobd/ctl/page/bundle/icon.svg") },
];

/// Whether the page has a file at this path.
pub(super) fn has(path: &str) -> bool {
    FILES.iter().any(|file| file.path == path)
}

pub(super) fn router() -> Router<Arc<Hub>> {
    files(&FILES)
}
