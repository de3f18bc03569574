//! Errors of UDDI requests, with the codes that a dispositionReport carries.
//!
//! Source: UDDI 2.04 API specification, appendix A, error code reference.

use std::fmt;

use crate::error::Error as RegistryError;
use crate::journal::JournalError;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident $text:literal $number:literal;)*) => {
        /// The code of an error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[$doc])* $name,)*
        }

        impl ErrorCode {
            /// The name, such as `E_invalidKeyPassed`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// The number (`errno`).
            #[must_use]
            pub const fn errno(self) -> u32 {
                match self {
                    $(Self::$name => $number,)*
                }
            }
        }
    };
}

codes! {
    /// No assertion equals the one to delete.
    AssertionNotFound "E_assertionNotFound" 30000;
    /// The token has expired.
    AuthTokenExpired "E_authTokenExpired" 10110;
    /// The token is missing or unknown.
    AuthTokenRequired "E_authTokenRequired" 10120;
    /// A limit of the publisher or of the registry is reached.
    AccountLimitExceeded "E_accountLimitExceeded" 10160;
    /// The request cannot be processed now.
    Busy "E_busy" 10400;
    /// The registry failed.
    FatalError "E_fatalError" 10500;
    /// A key does not exist, or not there.
    InvalidKeyPassed "E_invalidKeyPassed" 10210;
    /// A document cannot be fetched from its URL.
    InvalidUrlPassed "E_invalidURLPassed" 10220;
    /// A projection does not name a service of the business that it names.
    InvalidProjection "E_invalidProjection" 20230;
    /// A value is not in its checked value set.
    InvalidValue "E_invalidValue" 20200;
    /// The completion status does not exist.
    InvalidCompletionStatus "E_invalidCompletionStatus" 30100;
    /// Two names or descriptions have one language, or a language is not well-formed.
    LanguageError "E_languageError" 10060;
    /// The request is larger than the registry allows.
    MessageTooLarge "E_messageTooLarge" 30110;
    /// A name is too long.
    NameTooLong "E_nameTooLong" 10020;
    /// A service that the request needs does not answer.
    RequestTimeout "E_requestTimeout" 20240;
    /// Too many names, or options that exclude each other.
    TooManyOptions "E_tooManyOptions" 10030;
    /// The name and the credential are not those of a publisher.
    UnknownUser "E_unknownUser" 10150;
    /// The request has another version.
    UnrecognizedVersion "E_unrecognizedVersion" 10040;
    /// A find qualifier or a request is unknown, or not of this request or address.
    Unsupported "E_unsupported" 10050;
    /// The data belong to another publisher.
    UserMismatch "E_userMismatch" 10140;
    /// The value set of a reference cannot be used: its tModel says so.
    Unvalidatable "E_unvalidatable" 20220;
    /// A value is too long or absent, or its value set does not allow it there.
    ValueNotAllowed "E_valueNotAllowed" 20210;
}

/// The kind of the key that an error names (attribute `keyType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// A businessKey.
    Business,
    /// A serviceKey.
    Service,
    /// A bindingKey.
    Binding,
    /// A tModelKey.
    TModel,
}

impl KeyType {
    /// The value of the attribute.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Business => "businessKey",
            Self::Service => "serviceKey",
            Self::Binding => "bindingKey",
            Self::TModel => "tModelKey",
        }
    }
}

/// The first fault of a request; nothing of the request was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The code.
    pub code: ErrorCode,
    /// The kind of the key at fault, if a key is.
    pub key_type: Option<KeyType>,
    /// What is wrong, with the value.
    pub detail: String,
}

impl Error {
    /// An error that concerns no key.
    #[must_use]
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            key_type: None,
            detail: detail.into(),
        }
    }

    pub(crate) fn of_key(code: ErrorCode, kind: KeyType, detail: impl Into<String>) -> Self {
        Self {
            key_type: Some(kind),
            ..Self::new(code, detail)
        }
    }

    /// The key does not exist.
    pub(crate) fn unknown_key(kind: KeyType, key: impl fmt::Display) -> Self {
        let detail = format!("{} {key} is not known", kind.as_str());
        Self::of_key(ErrorCode::InvalidKeyPassed, kind, detail)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.detail)
    }
}

impl std::error::Error for Error {}

impl From<RegistryError> for Error {
    fn from(error: RegistryError) -> Self {
        let code = match &error {
            RegistryError::InvalidEntity { .. } => ErrorCode::ValueNotAllowed,
            RegistryError::NotOwner { .. } => ErrorCode::UserMismatch,
            RegistryError::Unknown(_) => ErrorCode::InvalidKeyPassed,
            RegistryError::NoRight { .. } => ErrorCode::UserMismatch,
            RegistryError::KeyTaken(_) => ErrorCode::InvalidKeyPassed,
            RegistryError::Full { .. }
            | RegistryError::NoRoom { .. }
            | RegistryError::TooManyEntities { .. } => ErrorCode::AccountLimitExceeded,
            RegistryError::TooLarge { .. } => ErrorCode::MessageTooLarge,
            // Without a journal nothing is stored until the operator acts.
            RegistryError::Stopped(_) | RegistryError::Journal(JournalError::Failed(_)) => {
                ErrorCode::Busy
            }
            _ if error.is_transient() => ErrorCode::Busy,
            _ => ErrorCode::FatalError,
        };
        Self::new(code, error.to_string())
    }
}
