//! Export and import of the registry as a file.

use std::io::{self, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chappe_registry::{ExportError, Format, ImportError, ImportRules, Imported, Room};
use hyper::body::Body as _;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::{IntoParams, ToSchema};

use super::params::Params;
use super::parts;
use super::problem::Problem;
use super::publish::{is_own_key, registry_problem};
use super::write::pace::Pace;
use crate::accounts::Caller;
use crate::clock;
use crate::permits::{Permit, RequestKind, Tenant};
use crate::registrar::Registrar;
use crate::shared::App;

/// Size of one piece of an export; two are in memory.
const PIECE_BYTES: usize = 64 * 1024;
/// Time in which a client must take the next piece, and for which an export then waits for the permit of a query.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// A file may have this many times the bytes that the registry may have: a text repeats its terms.
const FILE_FACTOR: u64 = 4;
/// Imports at a time; reason: each has a file of its own on the disk.
static IMPORTS: Semaphore = Semaphore::const_new(1);

/// The format of a file.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FileParams {
    /// nquads, trig or uddi. Default: nquads; for an import, the format of the content type.
    format: Option<String>,
}

/// What was imported.
#[derive(Serialize, ToSchema)]
pub(crate) struct ImportedFile {
    /// Entities of the file; of UDDI XML its elements.
    entities: u64,
    /// Those that were left out: the entities of nodes, which the nodes publish.
    left_out: u64,
}

impl FileParams {
    fn named(&self) -> Result<Option<Format>, Problem> {
        let Some(word) = &self.format else {
            return Ok(None);
        };
        let format = Format::from_word(word).ok_or_else(|| {
            let detail = format!("there is no format {word:?}");
            Problem::bad_request(detail).hint("use nquads, trig or uddi")
        });
        format.map(Some)
    }
}

/// Exports the entities that the caller may see, as N-Quads, TriG or UDDI XML.
#[utoipa::path(get, path = "/api/v1/registry/export", tag = "registry", params(FileParams),
    responses((status = 200, content_type = "application/n-quads", body = String),
        (status = 400, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn export(
    State(app): State<App>,
    caller: Caller,
    Params(params): Params<FileParams>,
) -> Result<Response, Problem> {
    let format = params.named()?.unwrap_or(Format::NQuads);
    let open = parts::permit(&app, &caller, RequestKind::Pull)?;
    let turn = parts::permit(&app, &caller, RequestKind::Query)?;
    let (sender, receiver) = mpsc::channel(1);
    tokio::task::spawn_blocking(move || {
        let pieces = Pieces {
            app: &app,
            tenant: app.shares.tenant(&app.accounts, &caller),
            sender: sender.clone(),
            turn: Some(turn),
        };
        let to = BufWriter::with_capacity(PIECE_BYTES, pieces);
        let written = app.registry.export(&caller.reader(), format, to, |_| {});
        if let Err(ExportError::Io(error)) = written {
            // The connection is closed, so that an incomplete file does not look complete.
            let last = timeout(STALL_TIMEOUT, sender.send(Err(error)));
            let _ = Handle::current().block_on(last);
        }
        drop(open);
    });
    let body = Body::from_stream(ReceiverStream::new(receiver));
    let kind = [(header::CONTENT_TYPE, format.media_type())];
    Ok((kind, body).into_response())
}

/// The pieces of an export, to its client.
struct Pieces<'a> {
    app: &'a App,
    tenant: Option<Tenant>,
    sender: mpsc::Sender<io::Result<Bytes>>,
    /// The permit of a query. A client that reads slowly keeps none.
    turn: Option<Permit>,
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = match self.sender.try_send(Ok(Bytes::copy_from_slice(bytes))) {
            Ok(()) => return Ok(bytes.len()),
            Err(TrySendError::Closed(_)) => return Err(io::ErrorKind::BrokenPipe.into()),
            Err(TrySendError::Full(piece)) => piece,
        };
        self.turn = None;
        let (permits, tenant) = (&self.app.permits, self.tenant.as_ref());
        Handle::current().block_on(async {
            match timeout(STALL_TIMEOUT, self.sender.send(piece)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(io::ErrorKind::BrokenPipe.into()),
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            }
            let turn = permits.take_within(RequestKind::Query, tenant, STALL_TIMEOUT);
            self.turn = Some(turn.await.map_err(|_| io::ErrorKind::TimedOut)?);
            Ok(bytes.len())
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Imports a file: all of it, or nothing if a line is refused.
#[utoipa::path(post, path = "/api/v1/registry/import", tag = "registry", params(FileParams),
    request_body(content((String = "application/n-quads"), (String = "application/trig"),
        (String = "application/xml"))),
    responses((status = 200, body = ImportedFile), (status = 400, body = Problem),
        (status = 413, body = Problem), (status = 415, body = Problem),
        (status = 503, body = Problem), (status = 507, body = Problem)))]
pub(super) async fn import(
    State(app): State<App>,
    caller: Caller,
    Params(params): Params<FileParams>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<ImportedFile>, Problem> {
    let format = match params.named()? {
        Some(format) => format,
        None => format_of(&headers)?,
    };
    let Ok(turn) = IMPORTS.try_acquire() else {
        return Err(Problem::unavailable("another file is being imported"));
    };
    let file = receive(&app, body).await?;
    // It runs to its end even if the client disconnects.
    let imported = tokio::task::spawn_blocking(move || {
        let imported = run(&app, &caller, format, file);
        drop(turn);
        imported
    });
    let imported = imported
        .await
        .map_err(|_| Problem::internal("the import failed"))?;
    match imported {
        Ok(Imported { entities, left_out }) => Ok(Json(ImportedFile { entities, left_out })),
        Err(ImportError::Stopped {
            line,
            reason,
            entities,
        }) => {
            let mut problem = registry_problem(&reason);
            problem.detail =
                format!("line {line}: {reason}; {entities} entities before it are imported");
            Err(problem)
        }
        Err(error @ ImportError::Refused { .. }) => {
            let problem = Problem::bad_request(error.to_string());
            Err(problem.hint("nothing was imported; correct the line and send the file again"))
        }
        Err(error) => Err(Problem::internal(error.to_string())),
    }
}

fn format_of(headers: &HeaderMap) -> Result<Format, Problem> {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    Format::from_media_type(kind).ok_or_else(|| {
        let detail = format!("a file cannot have the content type {kind:?}");
        let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail);
        problem.hint("use application/n-quads, application/trig or application/xml, or ?format=")
    })
}

/// Writes the body to a file that has no name, because it is read twice.
async fn receive(app: &App, mut body: Body) -> Result<std::fs::File, Problem> {
    let failed = |error: io::Error| {
        let detail = format!("cannot store the file: {error}");
        Problem::new(StatusCode::INSUFFICIENT_STORAGE, detail)
    };
    let path = app.config.data_directory.join("import.part");
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path);
    let file = Arc::new(file.map_err(failed)?);
    std::fs::remove_file(&path).map_err(failed)?;
    let most = u64::from(app.config.registry.max_bytes) * FILE_FACTOR;
    let mut pace = Pace::new(app);
    let mut total = 0;
    loop {
        let next =
            std::future::poll_fn(|context| std::pin::Pin::new(&mut body).poll_frame(context));
        let frame = match pace.wait(next).await? {
            None => break,
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                let detail = format!("the body cannot be read: {error}");
                return Err(Problem::bad_request(detail));
            }
        };
        let Ok(bytes) = frame.into_data() else {
            continue;
        };
        pace.arrived(bytes.len());
        total += bytes.len() as u64;
        if total > most {
            let detail = format!("the file is longer than {most} bytes");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
                .hint("send it in parts, or raise registry.max_bytes"));
        }
        if app.storage.free_bytes() < app.config.log.min_free_bytes {
            let detail = "the node's disk is full";
            return Err(Problem::new(StatusCode::INSUFFICIENT_STORAGE, detail));
        }
        let to = Arc::clone(&file);
        let written = tokio::task::spawn_blocking(move || (&*to).write_all(&bytes));
        let written = written.await.unwrap_or(Err(io::ErrorKind::Other.into()));
        written.map_err(failed)?;
    }
    Arc::into_inner(file).ok_or_else(|| Problem::internal("the file is in use"))
}

fn run(
    app: &App,
    caller: &Caller,
    format: Format,
    mut file: std::fs::File,
) -> Result<Imported, ImportError> {
    file.seek(SeekFrom::Start(0))?;
    let mut numbers = chappe_transport::seed_number().map_err(io::Error::other)?;
    let mut random = move || {
        // Splitmix64, from a random start.
        let mut next = || {
            numbers = numbers.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (numbers ^ (numbers >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            u128::from(mixed ^ (mixed >> 31))
        };
        next() << 64 | next()
    };
    let rules = ImportRules {
        importer: caller.name(),
        keeps_owners: true,
        room: Room {
            total_bytes: app.config.registry.max_bytes as usize / 4 * 3,
            ..Room::default()
        },
        unix_ms: clock::now().0 / 1_000_000,
        // The businesses of nodes and the services of their devices have other keys.
        is_left_out: &|key, owner| Registrar::is_node(owner) || key.is_some_and(is_own_key),
    };
    let reader = BufReader::with_capacity(PIECE_BYTES, file);
    app.registry
        .import(format, reader, &rules, &mut random, |entities| {
            tracing::debug!(entities, "importing");
        })
}
