"""The methods of explanation by name."""

from typing import Literal, get_args

from torchcaps.classifier.explain.evidence import evidence, integrated_gradients
from torchcaps.classifier.explain.gradients import grad_cam, gradient_activation, gradient_input
from torchcaps.classifier.explain.relevance import Explainer
from torchcaps.classifier.explain.votes import votes
from torchcaps.errors import UserError
from torchcaps.models.network import Network

Method = Literal["integrated-gradients", "evidence", "gradient-input", "gradient-activation", "grad-cam", "votes"]

DEFAULT: Method = "integrated-gradients"  # what scores best: docs/explanations.md
EXPLAINERS: dict[Method, Explainer] = {
    "integrated-gradients": integrated_gradients,
    "evidence": evidence,
    "gradient-input": gradient_input,
    "gradient-activation": gradient_activation,
    "grad-cam": grad_cam,
    "votes": votes,
}
CAPTIONS: dict[Method, str] = {
    "integrated-gradients": "what supports the class",
    "evidence": "evidence of pixels and capsules",
    "gradient-input": "gradient x input",
    "gradient-activation": "gradient x activation",
    "grad-cam": "Grad-CAM",
    "votes": "where the votes came from",
}


def find_explainer(method: Method, network: Network, name: str) -> Explainer:
    """The method of that name, or an error where there is none, or none for the network ``name``."""
    if method not in EXPLAINERS:
        raise UserError(f"method is {method!r}, expected one of {', '.join(get_args(Method))}")
    if method == "votes" and not network.has_capsules:
        others = ", ".join(other for other in EXPLAINERS if other != "votes")
        raise UserError(f"{name} has no capsules, so no votes to follow: expected another method ({others})")
    return EXPLAINERS[method]
