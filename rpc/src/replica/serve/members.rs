//! What PD answers about itself: any member may be asked, and the first answer is passed on.
//!
//! All members that we know of are asked at once, those the operator named and those PD named:
//! a client that asks us for the members has usually just lost one of them.

use std::future::Future;

use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Response, Status};

use super::{Serving, refusal};
use crate::proto::pdpb::pd_client::PdClient;
use crate::proto::pdpb::{
    GetClusterInfoRequest, GetClusterInfoResponse, GetMembersRequest, GetMembersResponse,
};

impl Serving {
    pub(super) async fn get_members(
        &self,
        request: GetMembersRequest,
    ) -> Result<GetMembersResponse, Status> {
        self.ask_any(|mut pd| {
            let request = request.clone();
            async move { pd.get_members(request).await }
        })
        .await
    }

    pub(super) async fn get_cluster_info(
        &self,
        request: GetClusterInfoRequest,
    ) -> Result<GetClusterInfoResponse, Status> {
        self.ask_any(|mut pd| {
            let request = request.clone();
            async move { pd.get_cluster_info(request).await }
        })
        .await
    }

    async fn ask_any<T, F>(&self, ask: impl Fn(PdClient<Channel>) -> F) -> Result<T, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<Response<T>, Status>> + Send + 'static,
    {
        if self.is_closed() {
            return Err(refusal::closed());
        }
        // Dropped with the first answer, and the other calls with it.
        let mut asked = JoinSet::new();
        for url in self.members_known() {
            if let Ok(channel) = self.remote.channel(&url) {
                asked.spawn(ask(PdClient::new(channel)));
            }
        }
        let first = async {
            while let Some(answer) = asked.join_next().await {
                if let Ok(Ok(answer)) = answer {
                    return Some(answer.into_inner());
                }
            }
            None
        };
        match timeout(self.backend_timeout, first).await {
            Ok(Some(answer)) => Ok(answer),
            _ => Err(Status::unavailable(
                "no PD member answers; check that the backend endpoints can be reached",
            )),
        }
    }

    /// Client URLs, each once.
    pub(in crate::replica) fn members_known(&self) -> Vec<String> {
        let mut urls = self.endpoints.clone();
        if let Some(pd) = self.shared.pd() {
            for url in pd
                .members
                .iter()
                .filter_map(|member| member.client_urls.first())
            {
                let url = url.trim_end_matches('/');
                if !urls.iter().any(|known| known == url) {
                    urls.push(url.to_owned());
                }
            }
        }
        urls
    }
}
