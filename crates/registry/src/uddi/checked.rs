//! The references of bags: tModels that exist, and values of checked sets.
//!
//! Source: UDDI 2.04 API specification, 4.3.5 and appendix I. Some canonical value sets are checked here, since what
//! they allow depends on what the registry holds; [`Taxonomies`](super::Taxonomies) has the others.

use chappe_identity::Principal;

use super::draft::Draft;
use super::error::{Error, ErrorCode, KeyType};
use super::key::{
    BusinessKey, GENERAL_KEYWORDS, IS_REPLACED_BY, Key, OPERATORS, OWNING_BUSINESS, TModelKey,
    TYPES,
};
use super::taxonomy::BagOf;
use super::value::KeyedReference;
use crate::uddi_keys::UddiClass;

/// The category of tModels whose values cannot be checked now.
const UNVALIDATABLE: &str = "unvalidatable";
/// The values of `uddi-org:types`. Its root, `tModel`, is no category.
const KINDS: [&str; 15] = [
    "identifier",
    "namespace",
    "categorization",
    "postalAddress",
    "relationship",
    "specification",
    "xmlSpec",
    "soapSpec",
    "wsdlSpec",
    "protocol",
    "transport",
    "signatureComponent",
    UNVALIDATABLE,
    "checked",
    "unchecked",
];

impl Draft<'_> {
    /// Checks the tModels and the values of a bag of an entity.
    pub(crate) fn check_bag(
        &self,
        bag: &[KeyedReference],
        kind: BagOf,
        of: UddiClass,
    ) -> Result<(), Error> {
        if self.is_restoring {
            return Ok(());
        }
        for reference in bag {
            let Some(key) = namespace(reference, kind)? else {
                continue;
            };
            let tmodel = self.check_tmodel(key)?;
            let mut kinds = tmodel.category_bag.iter();
            if kinds.any(|kind| kind.tmodel_key == Some(TYPES) && kind.key_value == UNVALIDATABLE) {
                let detail = format!("tModelKey {key} is categorized as {UNVALIDATABLE}");
                let code = ErrorCode::Unvalidatable;
                return Err(Error::of_key(code, KeyType::TModel, detail));
            }
            if let Some(code) = self.canonical_fault(key, reference.key_value.trim(), of) {
                let shown: String = reference.key_value.chars().take(80).collect();
                let name = tmodel.name.text;
                let detail = format!("{shown:?} is not a value of {name}, tModelKey {key}, here");
                return Err(Error::of_key(code, KeyType::TModel, detail));
            }
        }
        let taxonomies = self.taxonomies;
        taxonomies.map_or(Ok(()), |taxonomies| taxonomies.check(bag, kind))
    }

    /// What is wrong with a value of a canonical set.
    fn canonical_fault(&self, key: TModelKey, value: &str, of: UddiClass) -> Option<ErrorCode> {
        let (invalid, not_here) = (ErrorCode::InvalidValue, ErrorCode::ValueNotAllowed);
        match key {
            TYPES if value == "tModel" => Some(not_here),
            TYPES if !KINDS.contains(&value) => Some(invalid),
            OPERATORS if value != "node" => Some(invalid),
            OPERATORS if *self.principal != Principal::Operator => Some(not_here),
            OWNING_BUSINESS if of != UddiClass::TModel => Some(not_here),
            OWNING_BUSINESS => match self.owner_of_business(value) {
                None => Some(invalid),
                Some(owner) => (owner != self.stamp.owner).then_some(not_here),
            },
            IS_REPLACED_BY => {
                let is_tmodel = |key| self.check_tmodel(key).is_ok();
                let is_known = TModelKey::parse(value).is_some_and(is_tmodel)
                    || self.owner_of_business(value).is_some();
                (!is_known).then_some(invalid)
            }
            _ => None,
        }
    }

    /// The owner of the business with this key.
    fn owner_of_business(&self, key: &str) -> Option<String> {
        self.business_owner(BusinessKey::from_text(key)?).ok()
    }
}

/// The tModel of a reference that has to exist. Without one, a category is of `uddi-org:general_keywords`, whose
/// references have a name.
fn namespace(reference: &KeyedReference, kind: BagOf) -> Result<Option<TModelKey>, Error> {
    let of_tmodel = |code, detail: &str| Err(Error::of_key(code, KeyType::TModel, detail));
    let key = reference.tmodel_key;
    match (key, kind) {
        (None, BagOf::Identifiers) => of_tmodel(
            ErrorCode::InvalidKeyPassed,
            "a keyedReference of an identifierBag has no tModelKey",
        ),
        (None | Some(GENERAL_KEYWORDS), _)
            if reference.key_name.as_ref().is_none_or(String::is_empty) =>
        {
            of_tmodel(
                ErrorCode::InvalidValue,
                "a keyedReference of uddi-org:general_keywords has no keyName",
            )
        }
        _ => Ok(key),
    }
}
