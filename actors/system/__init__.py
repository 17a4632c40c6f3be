"""lastword's actor system: pykka actors with two dispatchers, supervision, death watch, timers and traces.

Import the modules: ``system.ActorSystem``, ``actor.Actor``, ``ref.Ref``, ``supervision`` (``Supervision``,
``ChildFailed``, ``Terminated``), ``clock``, ``tracing``, ``deadletters``, ``dispatcher.blocking``. Nothing
in here knows what a turn or a session is.
"""
