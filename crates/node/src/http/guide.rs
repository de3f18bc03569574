//! The guide at `/docs`: the pages that `mdbook build docs` made, read from the directory `http.docs`.
//!
//! Pages are read when they are requested, so the guide costs no memory until it is used, and a new one
//! appears without a restart. They are open to everyone, like the console, since they contain nothing of the node.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

use super::params::Name;
use super::problem::Problem;
use crate::shared::App;

/// Bytes that are in memory for one answer; reason: most pages fit into one piece.
const PIECE_BYTES: usize = 64 << 10;
/// Time in which a client must take a piece.
const STALL_TIMEOUT: Duration = Duration::from_secs(20);

/// `/docs/` and the files below it.
pub(super) fn routes() -> Router<App> {
    // Relative, because a proxy may serve the node below a path of its own.
    let directory = || async { Redirect::permanent("docs/") };
    Router::new()
        .route("/docs", get(directory))
        .route("/docs/", get(index))
        .route("/docs/{*path}", get(file))
}

async fn index(State(app): State<App>) -> Result<Response, Problem> {
    answer(&app, "index.html".to_owned()).await
}

async fn file(State(app): State<App>, Name(path): Name) -> Result<Response, Problem> {
    let path = match path.ends_with('/') {
        true => path + "index.html",
        false => path,
    };
    answer(&app, path).await
}

async fn answer(app: &App, path: String) -> Result<Response, Problem> {
    let directory = app.config.http.docs.clone();
    let opened = spawn_blocking(move || open(&directory, &path)).await;
    let (kind, length, file) =
        opened.map_err(|_| Problem::internal("a file of the guide cannot be opened"))??;
    let headers = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
    ];
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(send(file, length, sender));
    let body = Body::from_stream(ReceiverStream::new(receiver));
    Ok((headers, body).into_response())
}

/// Opens a file of the guide; with its media type and its length in bytes.
fn open(directory: &Path, path: &str) -> Result<(&'static str, u64, File), Problem> {
    let root = directory.canonicalize();
    let root = root.ok().filter(|root| root.join("index.html").is_file());
    let Some(root) = root else {
        let detail = match directory.as_os_str().is_empty() {
            true => "this node has no guide: http.docs is empty".to_owned(),
            false => format!("there is no guide in {}", directory.display()),
        };
        let hint = "`mdbook build docs` in the sources builds it in target/guide; set http.docs to \
                    that directory";
        return Err(Problem::not_found(detail).hint(hint));
    };
    let found = locate(&root, path).and_then(|(kind, found)| {
        let file = File::open(found).ok()?;
        let length = file.metadata().ok()?.len();
        Some((kind, length, file))
    });
    found.ok_or_else(|| {
        let shown: String = path.chars().take(120).collect();
        Problem::not_found(format!("the guide has no page {shown:?}"))
            .hint("/docs/ is its first page")
    })
}

/// The media type and the place of a file, if `path` names one inside of `root`, which is canonical.
fn locate(root: &Path, path: &str) -> Option<(&'static str, PathBuf)> {
    let is_name = |part: &str| !part.is_empty() && !part.starts_with('.');
    if !path.split('/').all(is_name) || path.contains(['\\', '\0']) {
        return None;
    }
    let kind = media_type(Path::new(path).extension()?.to_str()?)?;
    // A symbolic link may lead elsewhere.
    let found = root.join(path).canonicalize().ok()?;
    (found.starts_with(root) && found.is_file()).then_some((kind, found))
}

/// The media type of a file that a guide consists of; no other file is served.
fn media_type(extension: &str) -> Option<&'static str> {
    Some(match extension {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "woff2" => "font/woff2",
        _ => return None,
    })
}

/// Sends `left` bytes of a file. A file that cannot be read to this length closes the connection, so that an incomplete
/// page does not look complete.
async fn send(mut file: File, mut left: u64, sender: mpsc::Sender<io::Result<Bytes>>) {
    while left > 0 {
        let read = spawn_blocking(move || {
            let mut piece = vec![0; PIECE_BYTES];
            let count = file.read(&mut piece)?;
            piece.truncate(count);
            Ok::<_, io::Error>((file, Bytes::from(piece)))
        });
        let piece = match read.await {
            Ok(Ok((rest, piece))) => {
                file = rest;
                piece
            }
            Ok(Err(error)) => {
                let _ = sender.send(Err(error)).await;
                return;
            }
            Err(_) => return,
        };
        if piece.is_empty() {
            return; // The file became shorter.
        }
        let count = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        left -= count as u64;
        let sent = timeout(STALL_TIMEOUT, sender.send(Ok(piece.slice(..count)))).await;
        if !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_guide_are_found() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().canonicalize().unwrap().join("guide");
        std::fs::create_dir_all(root.join("reference")).unwrap();
        for name in [
            "guide/index.html",
            "guide/reference/sql.html",
            "guide/notes.txt",
            "key.html",
        ] {
            std::fs::write(outer.path().join(name), name).unwrap();
        }
        std::fs::write(root.join(".hidden.html"), "").unwrap();
        std::os::unix::fs::symlink("../key.html", root.join("link.html")).unwrap();
        let is_found = |path: &str| locate(&root, path).is_some();
        assert!(is_found("index.html") && is_found("reference/sql.html"));
        for path in [
            "",
            "reference",
            "none.html",
            "notes.txt",
            ".hidden.html",
            "link.html",
            "../key.html",
            "reference/../../key.html",
            "./index.html",
            "/index.html",
            "reference//sql.html",
            "..\\key.html",
            "index.html\0",
            "/etc/passwd",
        ] {
            assert!(!is_found(path), "{path:?}");
        }
    }
}
