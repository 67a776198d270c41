"""Form fields in which "nothing said" is a state of its own, apart from no, 0, [] and {}."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

INHERIT, YES, NO = "", "yes", "no"


class TriStateField(forms.ChoiceField):
    """inherit / yes / no for None / True / False. Anything else that is posted is an error, where Django's own field reads it as None."""

    def __init__(self, **kwargs: Any) -> None:
        choices = [(INHERIT, "Inherit"), (YES, "Yes"), (NO, "No")]
        super().__init__(**{**kwargs, "choices": choices, "required": False, "widget": UnfoldAdminSelectWidget()})

    def prepare_value(self, value: Any) -> Any:
        return {None: INHERIT, True: YES, False: NO}.get(value, value)

    def clean(self, value: Any) -> bool | None:
        return {INHERIT: None, YES: True, NO: False}[super().clean(value)]

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(self.prepare_value(initial) != (INHERIT if data is None else data))


class InheritableJSONField(forms.JSONField):
    """Nothing for None, where Django writes `null`; `[]` and `{}` stay what they are."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "required": False, "widget": UnfoldAdminTextareaWidget({"rows": 3, "spellcheck": "false"})})

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)


class ModelListWidget(forms.MultiWidget):
    """A choice and, for the choice "only these", the names."""

    def __init__(self, every: str) -> None:
        choose = UnfoldAdminSelectWidget({"aria-label": "Which models"}, [("every", every), ("only", "Only these")])
        names = UnfoldAdminTextInputWidget({"aria-label": "Names of models", "placeholder": "names, separated by commas; empty for none"})
        super().__init__({"choose": choose, "names": names})

    def decompress(self, value: list[str] | None) -> list[str]:
        return ["every", ""] if value is None else ["only", ", ".join(value)]


class ModelListField(forms.MultiValueField):
    """An allow-list of models: None for every model, [] for none."""

    def __init__(self, *, every: str, **kwargs: Any) -> None:
        parts = (forms.ChoiceField(choices=[("every", every), ("only", "Only these")]), forms.CharField(required=False))
        super().__init__(parts, require_all_fields=False, required=False, widget=ModelListWidget(every), **kwargs)

    def clean(self, value: Any) -> list[str] | None:
        """Not Django's: it takes a field that is left alone for an empty one, and both parts for needed."""
        choice, names = (*(value or ()), None, None)[:2]
        if self.fields[0].clean(choice or "every") == "every":
            if names and names.strip():
                raise forms.ValidationError("Names are given: choose “Only these”, or remove them.")
            return None
        return [name.strip() for name in (names or "").split(",") if name.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.clean(data) != initial)
        except forms.ValidationError:
            return True


class SuggestingInput(UnfoldAdminTextInputWidget):
    """A text input with a list of suggestions."""

    def __init__(self, suggestions: list[str]) -> None:
        super().__init__()
        self.suggestions = suggestions

    def render(self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None) -> SafeString:
        listing = f"{name}-suggestions"
        field = super().render(name, value, {**(attrs or {}), "list": listing}, renderer)
        options = format_html_join("", '<option value="{}"></option>', ((item,) for item in self.suggestions))
        return format_html('{}<datalist id="{}">{}</datalist>', field, listing, options)
