//! The messages of `spec/proto` and the service, as Rust has them.
//!
//! Written by `cargo xtask protobuf`: change `spec/proto` instead.

pub mod envoy {
    pub mod config {
        pub mod core {
            pub mod v3 {
                #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
                pub struct HeaderValue {
                    #[prost(string, tag = "1")]
                    pub key: ::prost::alloc::string::String,
                    #[prost(string, tag = "2")]
                    pub value: ::prost::alloc::string::String,
                }
            }
        }
    }
    pub mod extensions {
        pub mod common {
            pub mod ratelimit {
                pub mod v3 {
                    #[derive(Clone, PartialEq, ::prost::Message)]
                    pub struct RateLimitDescriptor {
                        /// In order: the first is the outermost.
                        #[prost(message, repeated, tag = "1")]
                        pub entries: ::prost::alloc::vec::Vec<rate_limit_descriptor::Entry>,
                        #[prost(message, optional, tag = "2")]
                        pub limit: ::core::option::Option<rate_limit_descriptor::RateLimitOverride>,
                        /// Permits that are taken, in place of what the request says; 0 only looks.
                        #[prost(message, optional, tag = "3")]
                        pub hits_addend: ::core::option::Option<u64>,
                        /// The permits are given back, not taken.
                        #[prost(bool, tag = "4")]
                        pub is_negative_hits: bool,
                    }
                    /// Nested message and enum types in `RateLimitDescriptor`.
                    pub mod rate_limit_descriptor {
                        #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
                        pub struct Entry {
                            #[prost(bytes = "vec", tag = "1")]
                            pub key: ::prost::alloc::vec::Vec<u8>,
                            #[prost(bytes = "vec", tag = "2")]
                            pub value: ::prost::alloc::vec::Vec<u8>,
                        }
                        /// A limit in place of the one that is configured.
                        #[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
                        pub struct RateLimitOverride {
                            #[prost(uint32, tag = "1")]
                            pub requests_per_unit: u32,
                            #[prost(
                                enumeration = "super::super::super::super::super::r#type::v3::RateLimitUnit",
                                tag = "2"
                            )]
                            pub unit: i32,
                        }
                    }
                }
            }
        }
    }
    pub mod r#type {
        pub mod v3 {
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
            #[repr(i32)]
            pub enum RateLimitUnit {
                Unknown = 0,
                Second = 1,
                Minute = 2,
                Hour = 3,
                Day = 4,
                Month = 5,
                Year = 6,
            }
            impl RateLimitUnit {
                /// String value of the enum field names used in the ProtoBuf definition.
                ///
                /// The values are not transformed in any way and thus are considered stable
                /// (if the ProtoBuf definition does not change) and safe for programmatic use.
                pub fn as_str_name(&self) -> &'static str {
                    match self {
                        Self::Unknown => "UNKNOWN",
                        Self::Second => "SECOND",
                        Self::Minute => "MINUTE",
                        Self::Hour => "HOUR",
                        Self::Day => "DAY",
                        Self::Month => "MONTH",
                        Self::Year => "YEAR",
                    }
                }
                /// Creates an enum from field names used in the ProtoBuf definition.
                pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
                    match value {
                        "UNKNOWN" => Some(Self::Unknown),
                        "SECOND" => Some(Self::Second),
                        "MINUTE" => Some(Self::Minute),
                        "HOUR" => Some(Self::Hour),
                        "DAY" => Some(Self::Day),
                        "MONTH" => Some(Self::Month),
                        "YEAR" => Some(Self::Year),
                        _ => None,
                    }
                }
            }
        }
    }
    pub mod service {
        pub mod ratelimit {
            pub mod v3 {
                #[derive(Clone, PartialEq, ::prost::Message)]
                pub struct RateLimitRequest {
                    /// Name of the set of descriptors.
                    #[prost(string, tag = "1")]
                    pub domain: ::prost::alloc::string::String,
                    /// The budgets that the request takes from. It is over the limit if it is over that of any of them.
                    #[prost(message, repeated, tag = "2")]
                    pub descriptors: ::prost::alloc::vec::Vec<
                        super::super::super::extensions::common::ratelimit::v3::RateLimitDescriptor,
                    >,
                    /// Permits that the request takes from each budget whose descriptor does not say so itself; 0 is 1.
                    #[prost(uint32, tag = "3")]
                    pub hits_addend: u32,
                }
                #[derive(Clone, PartialEq, ::prost::Message)]
                pub struct RateLimitResponse {
                    #[prost(enumeration = "rate_limit_response::Code", tag = "1")]
                    pub overall_code: i32,
                    /// One for each descriptor of the request, in its order.
                    #[prost(message, repeated, tag = "2")]
                    pub statuses: ::prost::alloc::vec::Vec<rate_limit_response::DescriptorStatus>,
                    /// For the answer that goes to the client.
                    #[prost(message, repeated, tag = "3")]
                    pub response_headers_to_add: ::prost::alloc::vec::Vec<
                        super::super::super::config::core::v3::HeaderValue,
                    >,
                    /// For the request that goes on.
                    #[prost(message, repeated, tag = "4")]
                    pub request_headers_to_add: ::prost::alloc::vec::Vec<
                        super::super::super::config::core::v3::HeaderValue,
                    >,
                    /// The body of the answer to a client that is over the limit.
                    #[prost(bytes = "vec", tag = "5")]
                    pub raw_body: ::prost::alloc::vec::Vec<u8>,
                }
                /// Nested message and enum types in `RateLimitResponse`.
                pub mod rate_limit_response {
                    /// A limit as permits per unit of time.
                    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
                    pub struct RateLimit {
                        #[prost(uint32, tag = "1")]
                        pub requests_per_unit: u32,
                        /// UNKNOWN where the limit comes back in a span that is no unit.
                        #[prost(enumeration = "rate_limit::Unit", tag = "2")]
                        pub unit: i32,
                        #[prost(string, tag = "3")]
                        pub name: ::prost::alloc::string::String,
                    }
                    /// Nested message and enum types in `RateLimit`.
                    pub mod rate_limit {
                        #[derive(
                            Clone,
                            Copy,
                            Debug,
                            PartialEq,
                            Eq,
                            Hash,
                            PartialOrd,
                            Ord,
                            ::prost::Enumeration
                        )]
                        #[repr(i32)]
                        pub enum Unit {
                            Unknown = 0,
                            Second = 1,
                            Minute = 2,
                            Hour = 3,
                            Day = 4,
                            Month = 5,
                            Year = 6,
                            Week = 7,
                        }
                        impl Unit {
                            /// String value of the enum field names used in the ProtoBuf definition.
                            ///
                            /// The values are not transformed in any way and thus are considered stable
                            /// (if the ProtoBuf definition does not change) and safe for programmatic use.
                            pub fn as_str_name(&self) -> &'static str {
                                match self {
                                    Self::Unknown => "UNKNOWN",
                                    Self::Second => "SECOND",
                                    Self::Minute => "MINUTE",
                                    Self::Hour => "HOUR",
                                    Self::Day => "DAY",
                                    Self::Month => "MONTH",
                                    Self::Year => "YEAR",
                                    Self::Week => "WEEK",
                                }
                            }
                            /// Creates an enum from field names used in the ProtoBuf definition.
                            pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
                                match value {
                                    "UNKNOWN" => Some(Self::Unknown),
                                    "SECOND" => Some(Self::Second),
                                    "MINUTE" => Some(Self::Minute),
                                    "HOUR" => Some(Self::Hour),
                                    "DAY" => Some(Self::Day),
                                    "MONTH" => Some(Self::Month),
                                    "YEAR" => Some(Self::Year),
                                    "WEEK" => Some(Self::Week),
                                    _ => None,
                                }
                            }
                        }
                    }
                    /// Decision of one descriptor.
                    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
                    pub struct DescriptorStatus {
                        #[prost(enumeration = "Code", tag = "1")]
                        pub code: i32,
                        /// Absent where no limit was met.
                        #[prost(message, optional, tag = "2")]
                        pub current_limit: ::core::option::Option<RateLimit>,
                        #[prost(uint32, tag = "3")]
                        pub limit_remaining: u32,
                        #[prost(message, optional, tag = "4")]
                        pub duration_until_reset: ::core::option::Option<::prost_types::Duration>,
                    }
                    #[derive(
                        Clone,
                        Copy,
                        Debug,
                        PartialEq,
                        Eq,
                        Hash,
                        PartialOrd,
                        Ord,
                        ::prost::Enumeration
                    )]
                    #[repr(i32)]
                    pub enum Code {
                        Unknown = 0,
                        Ok = 1,
                        OverLimit = 2,
                    }
                    impl Code {
                        /// String value of the enum field names used in the ProtoBuf definition.
                        ///
                        /// The values are not transformed in any way and thus are considered stable
                        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
                        pub fn as_str_name(&self) -> &'static str {
                            match self {
                                Self::Unknown => "UNKNOWN",
                                Self::Ok => "OK",
                                Self::OverLimit => "OVER_LIMIT",
                            }
                        }
                        /// Creates an enum from field names used in the ProtoBuf definition.
                        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
                            match value {
                                "UNKNOWN" => Some(Self::Unknown),
                                "OK" => Some(Self::Ok),
                                "OVER_LIMIT" => Some(Self::OverLimit),
                                _ => None,
                            }
                        }
                    }
                }
                /// Generated client implementations.
                pub mod rate_limit_service_client {
                    #![allow(
                        unused_variables,
                        dead_code,
                        missing_docs,
                        clippy::wildcard_imports,
                        clippy::let_unit_value,
                    )]
                    use tonic::codegen::*;
                    use tonic::codegen::http::Uri;
                    #[derive(Debug, Clone)]
                    pub struct RateLimitServiceClient<T> {
                        inner: tonic::client::Grpc<T>,
                    }
                    impl<T> RateLimitServiceClient<T>
                    where
                        T: tonic::client::GrpcService<tonic::body::Body>,
                        T::Error: Into<StdError>,
                        T::ResponseBody: Body<Data = Bytes> + std::marker::Send + 'static,
                        <T::ResponseBody as Body>::Error: Into<StdError> + std::marker::Send,
                    {
                        pub fn new(inner: T) -> Self {
                            let inner = tonic::client::Grpc::new(inner);
                            Self { inner }
                        }
                        pub fn with_origin(inner: T, origin: Uri) -> Self {
                            let inner = tonic::client::Grpc::with_origin(inner, origin);
                            Self { inner }
                        }
                        pub fn with_interceptor<F>(
                            inner: T,
                            interceptor: F,
                        ) -> RateLimitServiceClient<InterceptedService<T, F>>
                        where
                            F: tonic::service::Interceptor,
                            T::ResponseBody: Default,
                            T: tonic::codegen::Service<
                                http::Request<tonic::body::Body>,
                                Response = http::Response<
                                    <T as tonic::client::GrpcService<tonic::body::Body>>::ResponseBody,
                                >,
                            >,
                            <T as tonic::codegen::Service<
                                http::Request<tonic::body::Body>,
                            >>::Error: Into<StdError> + std::marker::Send + std::marker::Sync,
                        {
                            RateLimitServiceClient::new(InterceptedService::new(inner, interceptor))
                        }
                        /// Compress requests with the given encoding.
                        ///
                        /// This requires the server to support it otherwise it might respond with an
                        /// error.
                        #[must_use]
                        pub fn send_compressed(mut self, encoding: CompressionEncoding) -> Self {
                            self.inner = self.inner.send_compressed(encoding);
                            self
                        }
                        /// Enable decompressing responses.
                        #[must_use]
                        pub fn accept_compressed(mut self, encoding: CompressionEncoding) -> Self {
                            self.inner = self.inner.accept_compressed(encoding);
                            self
                        }
                        /// Limits the maximum size of a decoded message.
                        ///
                        /// Default: `4MB`
                        #[must_use]
                        pub fn max_decoding_message_size(mut self, limit: usize) -> Self {
                            self.inner = self.inner.max_decoding_message_size(limit);
                            self
                        }
                        /// Limits the maximum size of an encoded message.
                        ///
                        /// Default: `usize::MAX`
                        #[must_use]
                        pub fn max_encoding_message_size(mut self, limit: usize) -> Self {
                            self.inner = self.inner.max_encoding_message_size(limit);
                            self
                        }
                        /// Says whether a request may pass, and takes its hits from every budget that it names.
                        pub async fn should_rate_limit(
                            &mut self,
                            request: impl tonic::IntoRequest<super::RateLimitRequest>,
                        ) -> std::result::Result<
                            tonic::Response<super::RateLimitResponse>,
                            tonic::Status,
                        > {
                            self.inner
                                .ready()
                                .await
                                .map_err(|e| {
                                    tonic::Status::unknown(
                                        format!("Service was not ready: {}", e.into()),
                                    )
                                })?;
                            let codec = crate::wire::rls::protobuf::Protobuf::default();
                            let path = http::uri::PathAndQuery::from_static(
                                "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
                            );
                            let mut req = request.into_request();
                            req.extensions_mut()
                                .insert(
                                    GrpcMethod::new(
                                        "envoy.service.ratelimit.v3.RateLimitService",
                                        "ShouldRateLimit",
                                    ),
                                );
                            self.inner.unary(req, path, codec).await
                        }
                    }
                }
                /// Generated server implementations.
                pub mod rate_limit_service_server {
                    #![allow(
                        unused_variables,
                        dead_code,
                        missing_docs,
                        clippy::wildcard_imports,
                        clippy::let_unit_value,
                    )]
                    use tonic::codegen::*;
                    /// Generated trait containing gRPC methods that should be implemented for use with RateLimitServiceServer.
                    #[async_trait]
                    pub trait RateLimitService: std::marker::Send + std::marker::Sync + 'static {
                        /// Says whether a request may pass, and takes its hits from every budget that it names.
                        async fn should_rate_limit(
                            &self,
                            request: tonic::Request<super::RateLimitRequest>,
                        ) -> std::result::Result<
                            tonic::Response<super::RateLimitResponse>,
                            tonic::Status,
                        >;
                    }
                    #[derive(Debug)]
                    pub struct RateLimitServiceServer<T> {
                        inner: Arc<T>,
                        accept_compression_encodings: EnabledCompressionEncodings,
                        send_compression_encodings: EnabledCompressionEncodings,
                        max_decoding_message_size: Option<usize>,
                        max_encoding_message_size: Option<usize>,
                    }
                    impl<T> RateLimitServiceServer<T> {
                        pub fn new(inner: T) -> Self {
                            Self::from_arc(Arc::new(inner))
                        }
                        pub fn from_arc(inner: Arc<T>) -> Self {
                            Self {
                                inner,
                                accept_compression_encodings: Default::default(),
                                send_compression_encodings: Default::default(),
                                max_decoding_message_size: None,
                                max_encoding_message_size: None,
                            }
                        }
                        pub fn with_interceptor<F>(
                            inner: T,
                            interceptor: F,
                        ) -> InterceptedService<Self, F>
                        where
                            F: tonic::service::Interceptor,
                        {
                            InterceptedService::new(Self::new(inner), interceptor)
                        }
                        /// Enable decompressing requests with the given encoding.
                        #[must_use]
                        pub fn accept_compressed(mut self, encoding: CompressionEncoding) -> Self {
                            self.accept_compression_encodings.enable(encoding);
                            self
                        }
                        /// Compress responses with the given encoding, if the client supports it.
                        #[must_use]
                        pub fn send_compressed(mut self, encoding: CompressionEncoding) -> Self {
                            self.send_compression_encodings.enable(encoding);
                            self
                        }
                        /// Limits the maximum size of a decoded message.
                        ///
                        /// Default: `4MB`
                        #[must_use]
                        pub fn max_decoding_message_size(mut self, limit: usize) -> Self {
                            self.max_decoding_message_size = Some(limit);
                            self
                        }
                        /// Limits the maximum size of an encoded message.
                        ///
                        /// Default: `usize::MAX`
                        #[must_use]
                        pub fn max_encoding_message_size(mut self, limit: usize) -> Self {
                            self.max_encoding_message_size = Some(limit);
                            self
                        }
                    }
                    impl<T, B> tonic::codegen::Service<http::Request<B>> for RateLimitServiceServer<T>
                    where
                        T: RateLimitService,
                        B: Body + std::marker::Send + 'static,
                        B::Error: Into<StdError> + std::marker::Send + 'static,
                    {
                        type Response = http::Response<tonic::body::Body>;
                        type Error = std::convert::Infallible;
                        type Future = BoxFuture<Self::Response, Self::Error>;
                        fn poll_ready(
                            &mut self,
                            _cx: &mut Context<'_>,
                        ) -> Poll<std::result::Result<(), Self::Error>> {
                            Poll::Ready(Ok(()))
                        }
                        fn call(&mut self, req: http::Request<B>) -> Self::Future {
                            match req.uri().path() {
                                "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" => {
                                    #[allow(non_camel_case_types)]
                                    struct ShouldRateLimitSvc<T: RateLimitService>(pub Arc<T>);
                                    impl<
                                        T: RateLimitService,
                                    > tonic::server::UnaryService<super::RateLimitRequest>
                                    for ShouldRateLimitSvc<T> {
                                        type Response = super::RateLimitResponse;
                                        type Future = BoxFuture<
                                            tonic::Response<Self::Response>,
                                            tonic::Status,
                                        >;
                                        fn call(
                                            &mut self,
                                            request: tonic::Request<super::RateLimitRequest>,
                                        ) -> Self::Future {
                                            let inner = Arc::clone(&self.0);
                                            let fut = async move {
                                                <T as RateLimitService>::should_rate_limit(&inner, request)
                                                    .await
                                            };
                                            Box::pin(fut)
                                        }
                                    }
                                    let accept_compression_encodings = self.accept_compression_encodings;
                                    let send_compression_encodings = self.send_compression_encodings;
                                    let max_decoding_message_size = self.max_decoding_message_size;
                                    let max_encoding_message_size = self.max_encoding_message_size;
                                    let inner = self.inner.clone();
                                    let fut = async move {
                                        let method = ShouldRateLimitSvc(inner);
                                        let codec = crate::wire::rls::protobuf::Protobuf::default();
                                        let mut grpc = tonic::server::Grpc::new(codec)
                                            .apply_compression_config(
                                                accept_compression_encodings,
                                                send_compression_encodings,
                                            )
                                            .apply_max_message_size_config(
                                                max_decoding_message_size,
                                                max_encoding_message_size,
                                            );
                                        let res = grpc.unary(method, req).await;
                                        Ok(res)
                                    };
                                    Box::pin(fut)
                                }
                                _ => {
                                    Box::pin(async move {
                                        let mut response = http::Response::new(
                                            tonic::body::Body::default(),
                                        );
                                        let headers = response.headers_mut();
                                        headers
                                            .insert(
                                                tonic::Status::GRPC_STATUS,
                                                (tonic::Code::Unimplemented as i32).into(),
                                            );
                                        headers
                                            .insert(
                                                http::header::CONTENT_TYPE,
                                                tonic::metadata::GRPC_CONTENT_TYPE,
                                            );
                                        Ok(response)
                                    })
                                }
                            }
                        }
                    }
                    impl<T> Clone for RateLimitServiceServer<T> {
                        fn clone(&self) -> Self {
                            let inner = self.inner.clone();
                            Self {
                                inner,
                                accept_compression_encodings: self.accept_compression_encodings,
                                send_compression_encodings: self.send_compression_encodings,
                                max_decoding_message_size: self.max_decoding_message_size,
                                max_encoding_message_size: self.max_encoding_message_size,
                            }
                        }
                    }
                    /// Generated gRPC service name
                    pub const SERVICE_NAME: &str = "envoy.service.ratelimit.v3.RateLimitService";
                    impl<T> tonic::server::NamedService for RateLimitServiceServer<T> {
                        const NAME: &'static str = SERVICE_NAME;
                    }
                }
            }
        }
    }
}
