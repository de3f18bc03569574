//! The console: files embedded in the program, so none are read from the disk.

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

use crate::console::ASSETS;
use crate::shared::App;

/// One route per file, and `/` for `index.html`.
pub(super) fn routes() -> Router<App> {
    let mut router = Router::new();
    for (path, mime, bytes) in ASSETS {
        let answer =
            move || async move { ([(header::CONTENT_TYPE, *mime)], *bytes).into_response() };
        if *path == "index.html" {
            router = router.route("/", get(answer));
        }
        router = router.route(&format!("/{path}"), get(answer));
    }
    router
}
