//! Keys that a header field carries.

use ::http::header::{HeaderName, InvalidHeaderName};
use ::http::request::Parts;

use super::{Key, KeyError, KeyExtractor};

/// The value of one header field, such as an API key.
///
/// Only use a field that something in front of the service checks: a client that can write any value
/// has any number of budgets. The value is compared byte for byte, so a field that
/// means the same in several spellings needs an extractor of its own.
#[derive(Clone, Debug)]
pub struct Header(HeaderName);

impl Header {
    /// Returns an extractor of the field called `name`; case does not matter.
    ///
    /// # Errors
    /// [`InvalidHeaderName`] if no header field can have this name.
    pub fn new(name: &str) -> Result<Self, InvalidHeaderName> {
        HeaderName::try_from(name).map(Self)
    }
}

impl From<HeaderName> for Header {
    fn from(name: HeaderName) -> Self {
        Self(name)
    }
}

impl KeyExtractor for Header {
    fn extract(&self, request: &Parts) -> Result<Key, KeyError> {
        let mut values = request.headers.get_all(&self.0).iter();
        match (values.next(), values.next()) {
            (None, _) => Err(KeyError::MissingHeader(self.0.clone())),
            (Some(value), None) => Key::new(value),
            (Some(_), Some(_)) => Err(KeyError::RepeatedHeader(self.0.clone())),
        }
    }
}
