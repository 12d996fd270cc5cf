"""Whether this broker is the controller, and which broker is.

Raft elects a leader of the metadata quorum. It acts as the controller once it has applied everything that is
committed: from then on there is an `ActiveController`, until the leadership ends. Neighbours: `driver` has
the Raft node, `changes` proposes with the active controller, `request_handler` answers with it.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from tidelog_broker.errors import NotController
from tidelog_broker.membership.addresses import AddressBook
from tidelog_broker.quorum.active_controller import ActiveController
from tidelog_broker.quorum.committed_image import CommittedImage
from tidelog_broker.quorum.driver import RaftDriver
from tidelog_broker.quorum.options import QuorumOptions

log = structlog.get_logger(__name__)


class ControllerLeadership:
    """The controller as this broker knows it. Belongs to one event loop."""

    def __init__(
        self,
        me: int,
        raft: Callable[[], RaftDriver],
        committed: CommittedImage,
        addresses: AddressBook,
        options: QuorumOptions,
    ) -> None:
        self._me = me
        self._raft = raft
        self._committed = committed
        self._addresses = addresses
        self._voters_wanted = options.voters_wanted
        self.formed = options.formed
        """It is known by now, outside of all volumes, that the cluster was formed (M1)."""
        self.active: ActiveController | None = None
        """None: this broker is not the controller, or does not know yet that it is."""

    def __repr__(self) -> str:
        return f"<ControllerLeadership controller={self.leader} active={self.active}>"

    @property
    def leader(self) -> int | None:
        """The broker that leads the quorum, as far as this one has heard."""
        leader = self._raft().node.leader
        return None if leader is None else leader.broker_id

    @property
    def elsewhere(self) -> bool:
        """Another broker leads the quorum."""
        return self.leader not in (None, self._me)

    @property
    def current(self) -> bool:
        """Everything is applied here that the leader knows to be committed."""
        driver = self._raft()
        node = driver.node
        known = node.leader is not None and node.log.term(node.log.commit) == node.term
        return known and driver.applied == node.log.commit

    def not_controller(self) -> NotController:
        """The answer of a broker that is not the controller."""
        leader = self.leader if self.elsewhere else None
        return NotController(leader, None if leader is None else self._addresses.get(leader))

    def update(self) -> None:
        """Role, term, leader or what is applied may have changed."""
        driver, active = self._raft(), self.active
        node = driver.node
        if active is not None and (active.node is not node or not node.leads or node.term != active.term):
            self.active = None
            log.info("this broker is no longer the controller", term=active.term)
        if self.active is None and node.leads and self.current:
            self.active = ActiveController(
                driver,
                self._committed.now,
                voters_wanted=self._voters_wanted,
                formed=lambda: self.formed,
            )
            voters = tuple(voter.broker_id for voter in node.configuration.voters)
            log.info("this broker is the controller", term=node.term, voters=voters)

    def end(self) -> None:
        """This broker is no longer the controller, whatever Raft says."""
        self.active = None
