from __future__ import annotations

from agentload.endpoints.endpoint import Endpoint
from agentload.run.servers import speech
from agentload.study.parts import Request


def test_what_a_study_says_of_requests_is_in_their_body_and_an_arm_says_it_louder() -> None:
    endpoint = Endpoint(name="a", url="http://127.0.0.1:1/v1", extra_body={"temperature": 0.2, "top_k": 5})
    assert speech(endpoint, "m", Request(temperature=0.7)).extra == {"temperature": 0.2, "top_k": 5}
    assert speech(Endpoint(name="a", url="http://127.0.0.1:1/v1"), "m", Request(temperature=0.7)).extra == {"temperature": 0.7}
    assert speech(Endpoint(name="a", url="http://127.0.0.1:1/v1"), "m", Request()).extra == {}
