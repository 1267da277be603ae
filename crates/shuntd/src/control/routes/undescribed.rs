//! In the place of utoipa-axum in the program for small routers: the same paths, without their description, which would
//! be a twentieth of the program.

use axum::{Router, routing::MethodRouter};

/// Paths and their handlers.
pub(super) struct OpenApiRouter<S>(Router<S>);

impl<S: Clone + Send + Sync + 'static> OpenApiRouter<S> {
    pub(super) fn new() -> Self {
        Self(Router::new())
    }

    pub(super) fn routes(self, (path, handlers): (String, MethodRouter<S>)) -> Self {
        Self(self.0.route(&path, handlers))
    }

    pub(super) fn split_for_parts(self) -> (Router<S>, ()) {
        (self.0, ())
    }
}

/// The path of these handlers, and a router for their methods.
macro_rules! routes {
    ($($handler:path),+) => {
        utoipa_axum::paste! {{
            use utoipa_axum::PathItemExt;
            let mut router = axum::routing::MethodRouter::new();
            let paths = [$({
                for method in utoipa_axum::routes!(@path [methods()] of $handler) {
                    router = router.on(method.to_method_filter(), $handler);
                }
                utoipa_axum::routes!(@path [path()] of $handler)
            }),+];
            // They differ in their methods only.
            let [path, ..] = paths;
            (path, router)
        }}
    };
}
pub(super) use routes;
