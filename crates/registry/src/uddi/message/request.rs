//! Requests as values.

use crate::uddi::assertion::{CompletionStatus, FindRelatedBusinesses};
use crate::uddi::find::{FindBinding, FindBusiness, FindService, FindTModel};
use crate::uddi::key::{BindingKey, BusinessKey, ServiceKey, TModelKey};
use crate::uddi::taxonomy::Values;
use crate::uddi::value::{
    BindingTemplate, BusinessEntity, BusinessService, PublisherAssertion, TModel,
};

/// The namespace of the messages.
pub const NAMESPACE: &str = "urn:uddi-org:api_v2";
/// The version of the messages (attribute `generic`).
pub const GENERIC: &str = "2.0";
/// The namespaces of other versions start with this.
pub(super) const NAMESPACES: &str = "urn:uddi-org:api";
pub(super) const XML_NAMESPACE: &str = "http://www.w3.org/XML/1998/namespace";

/// One of the two addresses of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// For inquiries.
    Inquiry,
    /// For publication.
    Publication,
}

impl Port {
    /// The namespace of its WSDL description.
    #[must_use]
    pub const fn namespace(self) -> &'static str {
        match self {
            Self::Inquiry => "urn:uddi-org:inquiry_v2",
            Self::Publication => "urn:uddi-org:publication_v2",
        }
    }
}

/// A request with the token of its sender.
#[derive(Clone, Debug)]
pub struct Message {
    /// The name of the request.
    pub name: &'static str,
    /// The token (authInfo).
    pub token: Option<String>,
    /// The request.
    pub request: Request,
}

/// A request.
#[derive(Clone, Debug)]
pub enum Request {
    /// find_binding.
    FindBinding(FindBinding),
    /// find_business.
    FindBusiness(FindBusiness),
    /// find_relatedBusinesses.
    FindRelatedBusinesses(FindRelatedBusinesses),
    /// find_service.
    FindService(FindService),
    /// find_tModel.
    FindTModel(FindTModel),
    /// get_bindingDetail.
    BindingDetail(Vec<BindingKey>),
    /// get_businessDetail.
    BusinessDetail(Vec<BusinessKey>),
    /// get_businessDetailExt.
    BusinessDetailExt(Vec<BusinessKey>),
    /// get_serviceDetail.
    ServiceDetail(Vec<ServiceKey>),
    /// get_tModelDetail.
    TModelDetail(Vec<TModelKey>),
    /// validate_values.
    ValidateValues(Values),
    /// get_authToken.
    AuthToken {
        /// The name of the publisher.
        user_id: String,
        /// What proves it.
        credential: String,
    },
    /// discard_authToken.
    DiscardAuthToken,
    /// save_binding.
    SaveBinding(Vec<BindingTemplate>),
    /// save_business.
    SaveBusiness(Vec<BusinessEntity>),
    /// save_service.
    SaveService(Vec<BusinessService>),
    /// save_tModel.
    SaveTModel(Vec<TModel>),
    /// delete_binding.
    DeleteBinding(Vec<BindingKey>),
    /// delete_business.
    DeleteBusiness(Vec<BusinessKey>),
    /// delete_service.
    DeleteService(Vec<ServiceKey>),
    /// delete_tModel.
    DeleteTModel(Vec<TModelKey>),
    /// add_publisherAssertions.
    AddAssertions(Vec<PublisherAssertion>),
    /// delete_publisherAssertions.
    DeleteAssertions(Vec<PublisherAssertion>),
    /// set_publisherAssertions.
    SetAssertions(Vec<PublisherAssertion>),
    /// get_publisherAssertions.
    Assertions,
    /// get_assertionStatusReport.
    AssertionStatusReport(Option<CompletionStatus>),
    /// get_registeredInfo.
    RegisteredInfo,
}

impl Request {
    /// Whether it changes the registry, if it succeeds.
    #[must_use]
    pub const fn is_change(&self) -> bool {
        matches!(
            self,
            Self::SaveBinding(_)
                | Self::SaveBusiness(_)
                | Self::SaveService(_)
                | Self::SaveTModel(_)
                | Self::DeleteBinding(_)
                | Self::DeleteBusiness(_)
                | Self::DeleteService(_)
                | Self::DeleteTModel(_)
                | Self::AddAssertions(_)
                | Self::DeleteAssertions(_)
                | Self::SetAssertions(_)
        )
    }
}
