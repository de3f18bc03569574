//! The tModels that every UDDI registry has, with their published keys.
//!
//! Source: UDDI 2.04 API specification, appendix I; those of WSDL are of the OASIS note "Using WSDL in a UDDI
//! Registry" 2.0. Descriptions are ours. `checked` or `unchecked` is said where it does not depend on the files of value
//! sets that an operator has.

use chappe_identity::Principal;

use super::decode;
use super::draft::Draft;
use super::encode::Stamp;
use super::error::Error;
use super::key::{
    GENERAL_KEYWORDS, IS_REPLACED_BY, Key, OPERATORS, OWNING_BUSINESS, RELATIONSHIPS, TModelKey,
    TYPES,
};
use super::value::{KeyedReference, TModel, Text};
use crate::access::Access;
use crate::limits::Room;
use crate::registry::{Publication, Registry};
use crate::time::timestamp;
use crate::wsdl;

/// Key, name, description, values in [`TYPES`].
type Canonical = (
    TModelKey,
    &'static str,
    &'static str,
    &'static [&'static str],
);

const fn key(uuid: u128) -> TModelKey {
    TModelKey::new(uuid)
}

const CATEGORIES: &[&str] = &["categorization"];
const CHECKED: &[&str] = &["categorization", "checked"];
const UNCHECKED: &[&str] = &["categorization", "unchecked"];
const IDENTIFIERS: &[&str] = &["identifier", "unchecked"];
const PROTOCOLS: &[&str] = &["protocol"];
const SPECIFICATIONS: &[&str] = &["specification"];
const INTERFACES: &[&str] = &["specification", "xmlSpec", "soapSpec"];
const TRANSPORTS: &[&str] = &["transport"];

#[rustfmt::skip]
const CANONICAL: [Canonical; 33] = [
    (key(0x4CD7_E4BC_648B_426D_9936_443E_AAC8_AE23), "uddi-org:inquiry", "Inquiries of UDDI 1", INTERFACES),
    (key(0xAC10_4DCC_D623_452F_88A7_F8AC_D94D_9B2B), "uddi-org:inquiry_v2", "Inquiries of UDDI 2", INTERFACES),
    (key(0x64C7_56D1_3374_4E00_AE83_EE12_E38F_AE63), "uddi-org:publication", "Publication of UDDI 1", INTERFACES),
    (key(0xA2F3_6B65_2D66_4088_ABC7_914D_0E05_EB9E), "uddi-org:publication_v2", "Publication of UDDI 2",
        INTERFACES),
    (key(0x3FB6_6FB7_5FC3_462F_A351_C140_D9BD_8304), "uddi-org:taxonomy", "Checks of values of UDDI 1", INTERFACES),
    (key(0x1E3E_9CBC_F8CE_41AB_8F99_8832_6BAD_324A), "uddi-org:taxonomy_v2", "validate_values of UDDI 2",
        INTERFACES),
    (TYPES, "uddi-org:types", "Kinds of tModels", CHECKED),
    (GENERAL_KEYWORDS, "uddi-org:general_keywords", "Keywords, each in a namespace that keyName names",
        CHECKED),
    (RELATIONSHIPS, "uddi-org:relationships", "How businesses are related", &["relationship", "unchecked"]),
    (OWNING_BUSINESS, "uddi-org:owningBusiness", "The business that owns a tModel", CHECKED),
    (OPERATORS, "uddi-org:operators", "Operators of registries", CHECKED),
    (IS_REPLACED_BY, "uddi-org:isReplacedBy", "The business or tModel that replaces another",
        &["identifier", "checked"]),
    (key(0xC0B9_FE13_179F_413D_8A5B_5004_DB8E_5BB2), "ntis-gov:naics:1997",
        "Industries: NAICS, release of 1997", CATEGORIES),
    (key(0xDB77_450D_9FA8_45D4_A7BC_0441_1D14_E384), "unspsc-org:unspsc:3-1",
        "Products and services: UNSPSC 3.1", UNCHECKED),
    (key(0xCD15_3257_086A_4237_B336_6BDC_BDCC_6634), "unspsc-org:unspsc",
        "Products and services: UNSPSC 7", CATEGORIES),
    (key(0x4E49_A8D6_D5A2_4FC2_93A0_0411_D8D1_9E88), "uddi-org:iso-ch:3166:1999",
        "Countries and their parts: ISO 3166", CATEGORIES),
    (key(0x8609_C81E_EE1F_4D5A_B202_3EB1_3AD0_1823), "dnb-com:D-U-N-S",
        "Numbers of businesses by Dun & Bradstreet", IDENTIFIERS),
    (key(0xB1B1_BAF5_2329_43E6_AE13_BA8E_9719_5039), "thomasregister-com:supplierID",
        "Suppliers in the Thomas Register", IDENTIFIERS),
    (key(0x9333_5D49_3EFB_48A0_ACEA_EA10_2B60_DDC6), "uddi-org:smtp", "Invoked by e-mail", TRANSPORTS),
    (key(0x1A2B_00BE_6E2C_42F5_875B_56F3_2686_E0E7), "uddi-org:fax", "Invoked by fax", PROTOCOLS),
    (key(0x5FCF_5CD0_629A_4C50_8B16_F94E_9CF2_A674), "uddi-org:ftp", "Invoked by FTP", TRANSPORTS),
    (key(0x38E1_2427_5536_4260_A6F9_B5B5_30E6_3A07), "uddi-org:telephone", "Invoked by telephone", SPECIFICATIONS),
    (key(0x68DE_9E80_AD09_469D_8A37_0884_22BF_BC36), "uddi-org:http", "Invoked by HTTP", TRANSPORTS),
    (key(0x4CEC_1CEF_1F68_4B23_8CB7_8BAA_763A_EB89), "uddi-org:homepage", "A home page", SPECIFICATIONS),
    (wsdl::WSDL_TYPES, "uddi-org:wsdl:types", "Which part of a WSDL document", CATEGORIES),
    (wsdl::XML_NAMESPACE, "uddi-org:xml:namespace", "Namespaces of XML", CATEGORIES),
    (wsdl::XML_LOCAL_NAME, "uddi-org:xml:localName", "Local names of XML", CATEGORIES),
    (wsdl::PORT_TYPE_REFERENCE, "uddi-org:wsdl:portTypeReference", "The port type of a binding",
        CATEGORIES),
    (wsdl::PROTOCOL, "uddi-org:wsdl:categorization:protocol", "The protocol of a binding", CATEGORIES),
    (wsdl::TRANSPORT, "uddi-org:wsdl:categorization:transport", "The transport of a binding", CATEGORIES),
    (wsdl::SOAP_PROTOCOL, "uddi-org:protocol:soap", "SOAP", PROTOCOLS),
    (wsdl::HTTP_PROTOCOL, "uddi-org:protocol:http", "HTTP without SOAP", PROTOCOLS),
    (key(0xAD61_DE98_4DB8_31B2_A299_A237_3DC9_7212), "uddi-org:wsdl:address",
        "The address is in the WSDL document", &[]),
];

fn tmodel((key, name, description, kinds): Canonical) -> TModel {
    let kinds = kinds.iter().map(|kind| KeyedReference {
        tmodel_key: Some(TYPES),
        key_name: None,
        key_value: (*kind).to_owned(),
    });
    TModel {
        key: Some(key),
        name: Text::plain(name),
        descriptions: vec![Text::plain(description)],
        overview_doc: None,
        identifier_bag: Vec::new(),
        category_bag: kinds.collect(),
    }
}

/// The canonical tModels.
pub fn canonical_tmodels() -> impl Iterator<Item = TModel> {
    CANONICAL.into_iter().map(tmodel)
}

impl Registry {
    /// Publishes those canonical tModels that are missing or have another content, as `owner`.
    /// `None`: all are there. An entity of another owner with one of the keys is left alone.
    ///
    /// # Errors
    /// The registry's own.
    pub fn publish_canonical_tmodels(
        &self,
        owner: &str,
        unix_ms: i64,
    ) -> Result<Option<Publication>, Error> {
        let stamp = Stamp {
            owner: owner.to_owned(),
            access: Access::Public,
            modified: timestamp(unix_ms),
        };
        let (publication, ()) = self.transact(&Room::default(), |state| {
            let mut draft = Draft::new(state, &Principal::Operator, stamp.clone(), None);
            for tmodel in canonical_tmodels() {
                let Some(key) = tmodel.key else { continue };
                let known = state.get(&key.iri());
                let is_foreign = known.as_ref().is_some_and(|known| known.owner != owner);
                let found = known.as_ref().and_then(decode::tmodel);
                if is_foreign
                    || found.is_some_and(|(found, is_hidden)| found == tmodel && !is_hidden)
                {
                    continue;
                }
                draft.put_tmodel(key, &tmodel, false)?;
            }
            Ok::<_, Error>((draft.into_steps(), ()))
        })?;
        Ok(publication)
    }
}
