//! The guide at `/docs`: the pages that `mdbook build docs` made, read from the directory `http.docs`.
//!
//! Pages are read when they are requested, so the guide costs no memory until it is used, and a new one
//! appears without a restart. They are open to everyone, like the console, since they contain nothing of the node.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;
use axum::{Extension, Router};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::{error::Elapsed, timeout};
use tokio_stream::wrappers::ReceiverStream;

use super::params::Name;
use super::problem::Problem;
use super::server::Closing;
use crate::shared::App;

/// Bytes that are in memory for one answer; reason: most pages fit into one piece.
const PIECE_BYTES: usize = 64 << 10;
/// Time in which a client must take a piece.
const STALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Time of every answer, beside that of its bytes; reason: a link that pauses.
const TIME_LEAST: Duration = Duration::from_secs(60);
/// Bytes that a client must take in each second on average; reason: half a megabit, what a poor mobile link has.
const BYTES_PER_S: u64 = 64 << 10;
/// Pause that a client is asked for; reason: most answers take less.
const PAUSE_S: u32 = 2;

/// `/docs/` and the files below it.
pub(super) fn routes() -> Router<App> {
    // Relative, because a proxy may serve the node below a path of its own.
    let directory = || async { Redirect::permanent("docs/") };
    Router::new()
        .route("/docs", get(directory))
        .route("/docs/", get(index))
        .route("/docs/{*path}", get(file))
}

async fn index(
    State(app): State<App>,
    Extension(closing): Extension<Closing>,
) -> Result<Response, Problem> {
    answer(&app, "index.html".to_owned(), closing).await
}

async fn file(
    State(app): State<App>,
    Extension(closing): Extension<Closing>,
    Name(path): Name,
) -> Result<Response, Problem> {
    let path = match path.ends_with('/') {
        true => path + "index.html",
        false => path,
    };
    answer(&app, path, closing).await
}

async fn answer(app: &App, path: String, closing: Closing) -> Result<Response, Problem> {
    let permit = app.permits.guide.clone().try_acquire_owned();
    let permit = permit.map_err(|_| {
        Problem::unavailable("a quarter of the connections are answers of the guide already")
            .hint("retry in a moment, or raise http.max_connections")
            .retry_after(PAUSE_S)
    })?;
    let directory = app.config.http.docs.clone();
    let opened = spawn_blocking(move || open(&directory, &path)).await;
    let (kind, length, file) =
        opened.map_err(|_| Problem::internal("a file of the guide cannot be opened"))??;
    let headers = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
    ];
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(deliver(file, length, sender, closing, permit));
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

/// The time of an answer of so many bytes.
fn time_of(length: u64) -> Duration {
    TIME_LEAST + Duration::from_secs(length / BYTES_PER_S)
}

/// Sends a file, and closes the connection of a client that takes it too slowly.
async fn deliver(
    file: File,
    length: u64,
    sender: mpsc::Sender<io::Result<Bytes>>,
    closing: Closing,
    permit: OwnedSemaphorePermit,
) {
    let sent = timeout(time_of(length), send(file, length, sender)).await;
    if !matches!(sent, Ok(Ok(()))) {
        closing.close();
    }
    drop(permit);
}

/// Sends `left` bytes of a file, until all are taken. A file that cannot be read to this length closes the connection, so
/// that an incomplete page does not look complete.
///
/// # Errors
/// The client does not take a piece in time.
async fn send(
    mut file: File,
    mut left: u64,
    sender: mpsc::Sender<io::Result<Bytes>>,
) -> Result<(), Elapsed> {
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
                // Fails when the client is gone.
                let _ = sender.send(Err(error)).await;
                return Ok(());
            }
            Err(_) => return Ok(()),
        };
        if piece.is_empty() {
            return Ok(()); // The file became shorter.
        }
        let count = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        left -= count as u64;
        let sent = timeout(STALL_TIMEOUT, sender.send(Ok(piece.slice(..count)))).await?;
        if sent.is_err() {
            return Ok(()); // The client is gone.
        }
    }
    timeout(STALL_TIMEOUT, sender.closed()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_answer_has_more_time() {
        assert_eq!(time_of(0), Duration::from_secs(60));
        assert_eq!(time_of(5 << 20), Duration::from_secs(140));
    }

    #[tokio::test]
    async fn an_answer_lasts_until_all_of_it_is_taken() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &vec![7; 3 * PIECE_BYTES]).unwrap();
        let begin = |length| {
            std::io::Seek::rewind(&mut &file).unwrap();
            let (sender, receiver) = mpsc::channel(1);
            let sent = tokio::spawn(send(file.try_clone().unwrap(), length, sender));
            (sent, receiver)
        };
        let length = 2 * PIECE_BYTES as u64;
        let (sent, mut receiver) = begin(length);
        for _ in 0..2 {
            let piece = receiver.recv().await.unwrap().unwrap();
            assert_eq!(piece.len(), PIECE_BYTES);
        }
        assert!(!sent.is_finished());
        drop(receiver);
        assert_eq!(sent.await.unwrap(), Ok(()));
        // A client that is gone is not slow.
        let (sent, receiver) = begin(length);
        drop(receiver);
        assert_eq!(sent.await.unwrap(), Ok(()));
    }

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
