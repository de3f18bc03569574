//! Accounts: list, add, revoke, new tokens.

use std::collections::{BTreeMap, HashMap};

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use chappe_identity::{CurvePublic, Token};
use chappe_stream::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::guard::Subject;
use super::paging::Paging;
use super::params::{self, Name, Params};
use super::problem::{Problem, code};
use crate::accounts::{
    Account as Stored, AccountError, Caller, Definitions, OPERATOR, OwnShare, Percents, Shares,
    operator_rights, rights,
};
use crate::clock;
use crate::config::nearest;
use crate::permits::RequestKind;
use crate::shared::App;

/// All accounts.
#[derive(Serialize, ToSchema)]
pub(crate) struct Accounts {
    /// The first administrator, then the others by name, revoked ones included.
    accounts: Vec<Account>,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
}

/// An account of a person or a program.
#[derive(Serialize, ToSchema)]
pub(crate) struct Account {
    name: String,
    /// Its roles: read, write, operate or administer, each with the streams, prefixes and scopes to which it
    /// is restricted: `read=ward.*,sdc.ctxt.loc:/ward`.
    roles: Vec<String>,
    /// active, expired or revoked.
    state: &'static str,
    /// Whether it has a token.
    has_token: bool,
    /// The subject, the subject and issuer or the fingerprint (`sha256:…`) of its client certificate.
    certificate: Option<String>,
    /// The groups that it is in, which rights to entities name.
    groups: Vec<String>,
    /// The public key of the node that reads over ZeroMQ with its rights.
    key: Option<String>,
    /// Time of its creation (RFC 3339); null for the first administrator.
    created_at: Option<String>,
    /// The account that created it.
    created_by: Option<String>,
    /// RFC 3339.
    expires_at: Option<String>,
    /// RFC 3339.
    revoked_at: Option<String>,
    /// Its shares of the node; null for an administrator, which has none.
    share: Option<Percents>,
    /// What it uses now.
    #[serde(rename = "use")]
    used: Use,
}

/// What an account uses of the node.
#[derive(Serialize, ToSchema)]
#[schema(as = AccountUse)]
pub(crate) struct Use {
    /// Bytes of its streams in the log.
    bytes: u64,
    /// Above this, its oldest elements make room first when the log is full; null: without a share, or
    /// without `log.max_bytes`.
    bytes_max: Option<u64>,
    /// Streams that it defined, or writes.
    streams: usize,
    /// One more than this is refused; null: without a share.
    streams_max: Option<usize>,
    /// Bytes of the definitions of these streams.
    definitions_bytes: usize,
    /// A stream that would need more than this is refused; null: without a share.
    definitions_bytes_max: Option<usize>,
    /// Bytes of its entities in the registry.
    registry_bytes: usize,
    /// An entity that would need more than this is refused; null: without a share.
    registry_bytes_max: Option<usize>,
    /// Its entities in the registry.
    registry_entities: usize,
    /// One more than this is refused; null: without a share.
    registry_entities_max: Option<usize>,
    /// Concurrent requests by kind: `query`, `live`, `pull`, `write`. Those of administrators are not counted.
    requests: BTreeMap<&'static str, usize>,
}

/// What all accounts use of the log, by name.
#[derive(Default)]
struct Used {
    bytes: HashMap<String, u64>,
    definitions: HashMap<String, Definitions>,
}

impl Used {
    fn of(app: &App) -> Self {
        Self {
            bytes: app.shares.used_bytes(),
            definitions: app.shares.all_definitions(&app.catalogue),
        }
    }
}

impl Use {
    fn of(app: &App, name: &str, share: Option<Percents>, used: &Used) -> Self {
        let held = |kind: RequestKind| (kind.name(), app.permits.held_by(name, kind));
        let definitions = used.definitions.get(name).copied().unwrap_or_default();
        let all = app.config.registry.max_bytes as usize;
        Self {
            bytes: used.bytes.get(name).copied().unwrap_or_default(),
            bytes_max: share.and_then(|it| app.shares.bytes_max(it.bytes_percent)),
            streams: definitions.streams,
            streams_max: share.map(|it| app.shares.streams_max(it.streams_percent)),
            definitions_bytes: definitions.bytes,
            definitions_bytes_max: share
                .map(|it| app.shares.definitions_bytes_max(it.streams_percent)),
            registry_bytes: app.registry.bytes_of(name),
            registry_bytes_max: share.map(|it| Shares::registry_part(it.bytes_percent, all)),
            registry_entities: app.registry.entities_of(name),
            registry_entities_max: share.map(|it| {
                let all = app.config.registry.max_entities as usize;
                Shares::registry_part(it.bytes_percent, all)
            }),
            requests: RequestKind::ALL.into_iter().map(held).collect(),
        }
    }
}

impl Account {
    fn of(app: &App, account: &Stored, used: &Used) -> Self {
        let is_expired = account.expires_at.is_some_and(|end| end <= clock::now());
        let state = match (account.revoked_at, is_expired) {
            (Some(_), _) => "revoked",
            (None, true) => "expired",
            (None, false) => "active",
        };
        let grants = account.rights.grants().iter();
        let share = app.shares.of(account);
        Self {
            name: account.name.clone(),
            roles: grants.map(ToString::to_string).collect(),
            state,
            has_token: account.token.is_some(),
            certificate: account.certificate.as_ref().map(ToString::to_string),
            groups: account.groups.clone(),
            key: account.key.as_ref().map(ToString::to_string),
            created_at: Some(account.created_at.to_string()),
            created_by: Some(account.created_by.clone()),
            expires_at: account.expires_at.map(|time| time.to_string()),
            revoked_at: account.revoked_at.map(|time| time.to_string()),
            share,
            used: Use::of(app, &account.name, share, used),
        }
    }

    /// The key by which accounts are listed: the first administrator comes first.
    fn order(&self) -> &str {
        match self.created_at {
            None => "",
            Some(_) => &self.name,
        }
    }

    fn operator(app: &App) -> Self {
        let rights = operator_rights();
        Self {
            name: OPERATOR.to_owned(),
            roles: rights.grants().iter().map(ToString::to_string).collect(),
            state: "active",
            has_token: true,
            certificate: None,
            groups: Vec::new(),
            key: None,
            created_at: None,
            created_by: None,
            expires_at: None,
            revoked_at: None,
            share: None,
            used: Use::of(app, OPERATOR, None, &Used::default()),
        }
    }
}

/// All accounts. Tokens are not stored and cannot be listed.
#[utoipa::path(get, path = "/api/v1/accounts", tag = "accounts", params(Paging),
    responses((status = 200, body = Accounts), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(app): State<App>,
    Params(paging): Params<Paging>,
) -> Result<Json<Accounts>, Problem> {
    let stored = app.accounts.all();
    let used = Used::of(&app);
    let others = stored.iter().map(|one| Account::of(&app, one, &used));
    let accounts = std::iter::once(Account::operator(&app));
    let accounts = accounts.chain(others).collect();
    let (accounts, next) = paging.cut("accounts", accounts, Account::order)?;
    Ok(Json(Accounts { accounts, next }))
}

/// One account.
#[utoipa::path(get, path = "/api/v1/accounts/{name}", tag = "accounts",
    params(("name" = String, Path, description = "The account's name")),
    responses((status = 200, body = Account), (status = 404, body = Problem)))]
pub(super) async fn one(
    State(app): State<App>,
    Name(name): Name,
) -> Result<Json<Account>, Problem> {
    if name == OPERATOR {
        return Ok(Json(Account::operator(&app)));
    }
    let account = app.accounts.get(&name);
    let unknown = || account_problem(&app, AccountError::Unknown(name.clone()));
    let account = account.ok_or_else(unknown)?;
    Ok(Json(Account::of(&app, &account, &Used::of(&app))))
}

/// A new account.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewAccount {
    /// 1 to 64 letters, digits, `.`, `_`, `-` or `@`, the first a letter or digit.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")]
    name: String,
    /// At least one: read, write, operate or administer, with the streams, prefixes and scopes to which it is
    /// restricted: `read=ward.*,sdc.ctxt.loc:/ward`.
    #[schema(min_items = 1)]
    roles: Vec<String>,
    /// The subject of its client certificate, `CN=ada,O=Ward 3` (RFC 4514), the same with the authority that
    /// must have signed it, `CN=ada,O=Ward 3;issuer=CN=Ward CA`, or the fingerprint of the
    /// certificate: `sha256:` and 64 hexadecimal digits.
    certificate: Option<String>,
    /// At most 16 groups, which rights to entities name.
    #[serde(default)]
    #[schema(max_items = 16)]
    groups: Vec<String>,
    /// The public key of a node that reads over ZeroMQ (64 hexadecimal digits, or 40 characters of Z85):
    /// sessions and subscriptions with this key have the account's rights, and end with it.
    key: Option<String>,
    /// Whether it gets a token. By default it does unless it has a certificate or a key.
    token: Option<bool>,
    /// The time from which its credentials are not accepted (RFC 3339).
    expires_at: Option<String>,
    /// The shares that differ from those of `[accounts]` in the configuration.
    #[serde(default)]
    share: OwnShare,
}

/// An account with its token.
#[derive(Serialize, ToSchema)]
pub(crate) struct AddedAccount {
    account: Account,
    /// The token, which is shown only here: the node stores its hash.
    token: Option<String>,
}

/// Adds an account. The answer contains its token, which cannot be read again.
#[utoipa::path(post, path = "/api/v1/accounts", tag = "accounts", request_body = NewAccount,
    responses((status = 201, body = AddedAccount), (status = 400, body = Problem),
        (status = 409, body = Problem, description = "there is or was an account of this name"),
        (status = 422, body = Problem, description = "the account is invalid; nothing was changed")))]
pub(super) async fn add(
    State(app): State<App>,
    caller: Caller,
    body: Body,
) -> Result<Response, Problem> {
    let new: NewAccount = params::json(&app, body).await?;
    let invalid = |error: chappe_identity::Error| account_problem(&app, error.into());
    let certificate = new.certificate.as_deref().map(str::parse).transpose();
    let certificate = certificate.map_err(invalid)?;
    let expires_at = match &new.expires_at {
        None => None,
        Some(text) => Some(Timestamp::parse(text).ok_or_else(|| {
            Problem::bad_request(format!("expires_at: {text:?} is not a time"))
                .hint("write it as 2026-11-21T10:00:00Z")
        })?),
    };
    let key = new.key.as_deref().map(str::parse).transpose();
    let key: Option<CurvePublic> = key.map_err(invalid)?;
    let token = match new.token.unwrap_or(certificate.is_none() && key.is_none()) {
        true => Some(new_token()?),
        false => None,
    };
    if token.is_none() && certificate.is_none() && key.is_none() {
        let detail = "an account has a token, a certificate or a key";
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    let account = Stored {
        rights: rights(&new.roles).map_err(invalid)?,
        name: new.name.clone(),
        token: token.as_ref().map(Token::hash),
        certificate,
        groups: new.groups,
        key,
        created_at: clock::now(),
        created_by: caller.name().to_owned(),
        expires_at,
        revoked_at: None,
        share: new.share,
    };
    change(&app, move |app| app.accounts.add(account)).await?;
    let shown = app.accounts.get(&new.name);
    let removed = || account_problem(&app, AccountError::Unknown(new.name.clone()));
    let shown = shown.ok_or_else(removed)?;
    app.shares.apply(&shown.name, Some(&shown));
    let account = Account::of(&app, &shown, &Used::of(&app));
    let body = Json(AddedAccount {
        account,
        token: token.as_ref().map(Token::reveal),
    });
    let mut subject = format!("{} {}", new.name, new.roles.join(" "));
    if !shown.groups.is_empty() {
        subject.push_str(&format!(" groups {}", shown.groups.join(",")));
    }
    if new.share != OwnShare::default() {
        subject.push_str(&format!(" share {}", new.share));
    }
    Ok((StatusCode::CREATED, Extension(Subject(subject)), body).into_response())
}

/// Gives an account a new token; the old one is no longer valid.
#[utoipa::path(post, path = "/api/v1/accounts/{name}/token", tag = "accounts",
    params(("name" = String, Path, description = "The account's name")),
    responses((status = 200, body = AddedAccount), (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the account was revoked, or is the first administrator")))]
pub(super) async fn renew(
    State(app): State<App>,
    Name(name): Name,
) -> Result<Json<AddedAccount>, Problem> {
    let token = new_token()?;
    let hash = token.hash();
    let renewed = name.clone();
    change(&app, move |app| app.accounts.renew(&renewed, &hash)).await?;
    let account = one(State(app), Name(name)).await?.0;
    let token = Some(token.reveal());
    Ok(Json(AddedAccount { account, token }))
}

/// Sets the shares of an account; those that are absent follow `[accounts]` in the configuration. Effective at
/// once.
#[utoipa::path(put, path = "/api/v1/accounts/{name}/share", tag = "accounts", request_body = OwnShare,
    params(("name" = String, Path, description = "The account's name")),
    responses((status = 200, body = Account), (status = 400, body = Problem),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the account was revoked, or is the first administrator"),
        (status = 422, body = Problem, description = "a share is not 1 to 100 percent")))]
pub(super) async fn set_share(
    State(app): State<App>,
    Name(name): Name,
    body: Body,
) -> Result<Response, Problem> {
    let share: OwnShare = params::json(&app, body).await?;
    let changed = name.clone();
    change(&app, move |app| app.accounts.set_share(&changed, share)).await?;
    let account = app.accounts.get(&name);
    app.shares.apply(&name, account.as_ref());
    let shown = one(State(app), Name(name)).await?;
    Ok((Extension(Subject(share.to_string())), shown).into_response())
}

/// The groups of an account.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Groups {
    /// At most 16.
    #[schema(max_items = 16)]
    groups: Vec<String>,
}

/// Sets the groups that an account is in. Rights to entities may name a group. Open connections of the account
/// end when its groups change.
#[utoipa::path(put, path = "/api/v1/accounts/{name}/groups", tag = "accounts", request_body = Groups,
    params(("name" = String, Path, description = "The account's name")),
    responses((status = 200, body = Account), (status = 400, body = Problem),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the account was revoked, or is the first administrator"),
        (status = 422, body = Problem, description = "a name is invalid, or there are too many")))]
pub(super) async fn set_groups(
    State(app): State<App>,
    Name(name): Name,
    body: Body,
) -> Result<Response, Problem> {
    let Groups { groups } = params::json(&app, body).await?;
    let subject = groups.join(",");
    let changed = name.clone();
    change(&app, move |app| app.accounts.set_groups(&changed, groups)).await?;
    let shown = one(State(app), Name(name)).await?;
    Ok((Extension(Subject(subject)), shown).into_response())
}

/// Parameters of a revocation.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RevocationParams {
    /// Whether to remove the account altogether, so that its name is free.
    #[serde(default)]
    forget: bool,
}

/// Revokes an account: its credentials are no longer valid, and its open connections end.
#[utoipa::path(delete, path = "/api/v1/accounts/{name}", tag = "accounts",
    params(("name" = String, Path, description = "The account's name"), RevocationParams),
    responses((status = 204), (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the account is the first administrator")))]
pub(super) async fn revoke(
    State(app): State<App>,
    Name(name): Name,
    Params(params): Params<RevocationParams>,
) -> Result<StatusCode, Problem> {
    let revoke = move |app: &App| match params.forget {
        true => app.accounts.forget(&name),
        false => app.accounts.revoke(&name),
    };
    change(&app, revoke).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The caller of a request.
#[derive(Serialize, ToSchema)]
pub(crate) struct OwnAccount {
    /// The account's name, or `anonymous`.
    name: String,
    /// Its roles, with `read` where reading is open.
    roles: Vec<String>,
}

/// The account of this request's credential, with its roles.
#[utoipa::path(get, path = "/api/v1/self", tag = "accounts",
    responses((status = 200, body = OwnAccount)))]
pub(super) async fn own(caller: Caller) -> Json<OwnAccount> {
    Json(OwnAccount {
        name: caller.name().to_owned(),
        roles: caller.roles(),
    })
}

fn new_token() -> Result<Token, Problem> {
    let seed = chappe_transport::seed();
    let failed = |_| Problem::internal("the system provides no random numbers");
    Ok(Token::from_seed(seed.map_err(failed)?))
}

/// Changes accounts, which syncs a file, on a thread that may block on the disk.
async fn change(
    app: &App,
    change: impl FnOnce(&App) -> Result<(), AccountError> + Send + 'static,
) -> Result<(), Problem> {
    let of = app.clone();
    let done = tokio::task::spawn_blocking(move || change(&of)).await;
    let done = done.map_err(|_| Problem::internal("changing the accounts failed"))?;
    done.map_err(|error| account_problem(app, error))
}

fn account_problem(app: &App, error: AccountError) -> Problem {
    let problem = |status| Problem::new(status, error.to_string());
    match &error {
        AccountError::Exists(_) | AccountError::Certificate(_) | AccountError::Key(_) => {
            problem(StatusCode::CONFLICT).code(code::ACCOUNT_EXISTS)
        }
        AccountError::Revoked(name) => problem(StatusCode::CONFLICT)
            .code(code::ACCOUNT_EXISTS)
            .hint(format!(
                "use another name, or remove the account altogether: chappe account revoke {name} --forget"
            )),
        AccountError::Operator => problem(StatusCode::CONFLICT)
            .code(code::ACCOUNT_FIXED)
            .hint("for a new token, remove the file `token` in the data directory and restart the node"),
        AccountError::Unknown(name) => {
            let accounts = app.accounts.all();
            let problem = problem(StatusCode::NOT_FOUND);
            match nearest(name, accounts.iter().map(|one| one.name.as_str())) {
                Some(near) => problem.hint(format!("did you mean {near:?}?")),
                None => problem.hint("`chappe account list` lists all accounts (GET /api/v1/accounts over HTTP)"),
            }
        }
        AccountError::TooMany => problem(StatusCode::CONFLICT)
            .hint("remove revoked accounts: chappe account revoke NAME --forget"),
        AccountError::NotSaved(_) => problem(StatusCode::INTERNAL_SERVER_ERROR)
            .hint("free space on the disk of the data directory"),
        AccountError::Invalid(_)
        | AccountError::Reserved(_)
        | AccountError::Share
        | AccountError::Expired => problem(StatusCode::UNPROCESSABLE_ENTITY),
    }
}
