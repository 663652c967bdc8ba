"""Types of workload options: bounds are part of the type, so that one place checks them all."""

from typing import Annotated, TypeAlias

from msgspec import Meta

Count: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Rate: TypeAlias = Annotated[float, Meta(gt=0)]
Spread: TypeAlias = Annotated[float, Meta(ge=0, le=50)]
Peak: TypeAlias = Annotated[float, Meta(ge=1, le=20)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
Weight: TypeAlias = Annotated[float, Meta(ge=0)]
