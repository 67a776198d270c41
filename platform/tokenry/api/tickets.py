"""`POST /v1/tickets`: a browser's ticket for one WebSocket, good once and for a minute."""

from __future__ import annotations

from django.http import HttpResponse
from msgspec import Struct
from rest_framework.request import Request

from inference.protocol.codec import decode
from tenants import tickets
from tokenry.api.base import TenantView, answer
from tokenry.application import platform_state


class TicketRequest(Struct, kw_only=True):
    model: str | None = None


class Ticket(Struct, kw_only=True):
    object: str = "ticket"
    ticket: str
    model: str | None
    expires_in: int  # seconds


class TicketsView(TenantView):
    def post(self, request: Request) -> HttpResponse:
        wanted = decode(TicketRequest, request.data)
        name = "" if wanted.model is None else wanted.model
        if name:
            platform_state().fleet.model(name, self.caller.models)
        ticket = tickets.sell(caller=self.caller, model=name)
        return answer(Ticket(ticket=ticket, model=wanted.model, expires_in=int(tickets.LIFETIME.total_seconds())))
